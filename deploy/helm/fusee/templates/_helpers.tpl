{{- define "fusee.name" -}}
{{- printf "%s" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "fusee.labels" -}}
app.kubernetes.io/name: fusee
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "fusee.selector" -}}
app.kubernetes.io/name: fusee
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "fusee.image" -}}
{{- $registry := .root.Values.image.registry -}}
{{- if $registry }}{{ $registry }}/{{ end }}{{ .image }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end -}}

{{- define "fusee.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
  {{- if .Values.rdma.resource }}
  # Memory that a device reaches is locked.
  add: [IPC_LOCK]
  {{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "fusee.environment" -}}
- name: FUSEE_POOL
  value: /etc/fusee/pool.toml
- name: FUSEE_METRICS_BIND
  value: 0.0.0.0
- name: FUSEE_LOG_FORMAT
  value: json
{{- if .Values.tls.insecure }}
- name: FUSEE_INSECURE
  value: "true"
{{- end }}
{{- end -}}

{{- define "fusee.volumes" -}}
- name: pool
  configMap:
    name: {{ include "fusee.name" . }}-pool
{{- if .Values.tls.secretName }}
- name: tls
  secret:
    secretName: {{ .Values.tls.secretName }}
    defaultMode: 0440
{{- end }}
{{- end -}}

{{- define "fusee.mounts" -}}
- name: pool
  mountPath: /etc/fusee
  readOnly: true
{{- if .Values.tls.secretName }}
- name: tls
  mountPath: /etc/fusee-tls
  readOnly: true
{{- end }}
{{- end -}}

{{- define "fusee.scraped" -}}
{{- if .root.Values.metrics.podAnnotations }}
prometheus.io/scrape: "true"
prometheus.io/path: /metrics
prometheus.io/port: {{ .port | quote }}
{{- end }}
# Every process reads the pool file when it starts.
fusee/pool: {{ include "fusee.pool" .root | sha256sum }}
{{- end -}}

{{- define "fusee.pool" -}}
{{- if not (or .Values.tls.secretName .Values.tls.insecure) -}}
{{- fail "the pool's processes are on several machines: name a secret in tls.secretName, or set tls.insecure where nobody else hears their network" -}}
{{- end -}}
{{- if and (eq .Values.pool.fabric "verbs") (not .Values.rdma.resource) -}}
{{- fail "pool.fabric is verbs: name the resource of your RDMA device plugin in rdma.resource" -}}
{{- end -}}
{{- $name := include "fusee.name" . -}}
{{- $namespace := .Release.Namespace -}}
name = {{ .Values.pool.name | quote }}
fabric = {{ .Values.pool.fabric | quote }}
replicas = {{ .Values.pool.replicas }}
memory = {{ .Values.pool.memory | quote }}
clients = {{ .Values.pool.clients }}
nodes = [
{{- range $node := until (int .Values.memoryNode.count) }}
  "{{ $name }}-mnd-{{ $node }}.{{ $name }}-mnd.{{ $namespace }}.svc:7000",
{{- end }}
]
{{- if .Values.tls.secretName }}

[tls]
ca = "/etc/fusee-tls/ca.crt"
certificate = "/etc/fusee-tls/tls.crt"
key = "/etc/fusee-tls/tls.key"
{{- end }}
{{- end -}}
