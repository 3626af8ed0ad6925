//! Configuration: flags, then environment, then a file, then defaults.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser};
use fusee_control::{PoolFile, Tls};
use fusee_fabric::verbs::DeviceChoice;
use serde::Deserialize;
use thiserror::Error;

use crate::notify::Classes;

mod choice;

pub use choice::{ClientCertificates, IoUring, LogFormat};
pub use fusee_control::Size;

use choice::YesNo;

/// The smallest share of memory that a memory node works with.
const NODE_BYTES_MIN: u64 = 64 << 20;
/// The highest replication factor that the protocol was checked for.
const REPLICAS_MAX: u8 = 4;
const MEMORY_NODES_MAX: u16 = 256;
const WORKERS_MAX: usize = 256;

/// What the server runs with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Addresses to listen on.
    pub bind: Vec<IpAddr>,
    /// The port; 0 takes any.
    pub port: u16,
    /// TLS for clients, on a port of its own.
    pub tls: Option<TlsFiles>,
    /// Threads that serve clients.
    pub workers: usize,
    /// How those threads send and receive.
    pub io_uring: IoUring,
    /// Bytes of the embedded memory nodes together.
    pub memory_bytes: u64,
    /// Copies of every object.
    pub replicas: u8,
    /// Embedded memory nodes.
    pub memory_nodes: u16,
    /// The file of the pool to join; without it, memory nodes are embedded.
    pub pool: Option<PathBuf>,
    /// Where other gateways of the pool bring their messages, on any port; by default
    /// where memory nodes on other hosts see this one.
    pub peer_address: Option<IpAddr>,
    /// May the pool's control plane be without TLS where others could hear it?
    pub insecure: bool,
    /// The RDMA device, for pools on verbs.
    pub device: DeviceChoice,
    /// Keys whose place each worker remembers.
    pub index_cache: usize,
    /// Connections at a time.
    pub max_clients: usize,
    /// What clients authenticate by; none if empty.
    pub require_pass: String,
    /// The file that users are read from and written to.
    pub acl_file: Option<PathBuf>,
    /// Whether only this machine is served while there is no password.
    pub protected_mode: bool,
    /// Classes of events that who listens is told of, by Redis's letters.
    pub notify_keyspace_events: String,
    /// Whether clients may use DEBUG.
    pub enable_debug_command: bool,
    /// Seconds after which a silent connection is closed; 0 is never.
    pub timeout_s: u64,
    /// Bytes of replies that may wait for one client; with more, it is not read
    /// from.
    pub output_limit_bytes: usize,
    /// The longest unfinished request in bytes.
    pub query_limit_bytes: usize,
    /// Seconds that connections have to end after SIGTERM.
    pub drain_s: u64,
    /// Where metrics are served.
    pub metrics_bind: IpAddr,
    /// Their port; 0 serves none, and `None` takes any that is free.
    pub metrics_port: Option<u16>,
    /// How log lines look.
    pub log_format: LogFormat,
    /// Which are written, as tracing's filters say it.
    pub log_level: String,
}

/// What TLS for clients needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The port; 0 takes any.
    pub port: u16,
    /// The certificate that is shown, and what leads from it to an authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority of clients' certificates.
    pub authority: Option<PathBuf>,
    /// Whether clients have to show one.
    pub clients: ClientCertificates,
}

/// Why the configuration is not one, and what to do.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A flag or variable; also --help and --version, which are no errors.
    #[error(transparent)]
    Flags(#[from] clap::Error),
    /// The file cannot be read.
    #[error("cannot read the configuration file {path}: {source}; check the path after --config")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("the configuration file {path} is wrong: {source}")]
    Parse {
        /// Which.
        path: PathBuf,
        /// Where and why.
        source: Box<toml::de::Error>,
    },
    /// A value, or several together, make no sense.
    #[error("{0}")]
    Value(String),
}

/// A Redis-compatible server whose keys live in FUSEE memory nodes.
///
/// Without flags it serves 127.0.0.1:6379 from memory nodes inside this
/// process: try `redis-cli ping`. Every flag can also be given as the variable
/// shown beside it, or as `name = value` in the file of --config; flags win
/// over variables, variables over the file.
#[derive(Parser)]
#[command(
    name = "gateway",
    version,
    max_term_width = 100,
    after_help = "gateway doctor [--pool FILE] looks at this machine and at a pool, and says what \
                  to do about what is amiss."
)]
struct Flags {
    /// Read settings from a TOML file: the long flags' names, such as `memory = "4GiB"`.
    #[arg(long, env = "FUSEE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    layer: Layer,
}

/// The settings that one source gives.
#[derive(Args, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Layer {
    /// Addresses to listen on, with commas between; choose a password before you leave
    /// 127.0.0.1 [default: 127.0.0.1]
    #[arg(long, env = "FUSEE_BIND", value_name = "ADDRESS", value_delimiter = ',')]
    bind: Option<Vec<IpAddr>>,
    /// Port for Redis clients; 0 takes any that is free [default: 6379]
    #[arg(long, env = "FUSEE_PORT")]
    port: Option<u16>,
    /// Port for Redis clients that speak TLS; needs a certificate and its key [default: none]
    #[arg(long, env = "FUSEE_TLS_PORT", value_name = "PORT")]
    tls_port: Option<u16>,
    /// Certificate for --tls-port in PEM, with those that lead to its authority
    #[arg(long, env = "FUSEE_TLS_CERT_FILE", value_name = "FILE")]
    tls_cert_file: Option<PathBuf>,
    /// Private key of that certificate in PEM
    #[arg(long, env = "FUSEE_TLS_KEY_FILE", value_name = "FILE")]
    tls_key_file: Option<PathBuf>,
    /// Authority in PEM that clients' certificates have to come from
    #[arg(long, env = "FUSEE_TLS_CA_CERT_FILE", value_name = "FILE")]
    tls_ca_cert_file: Option<PathBuf>,
    /// Whether clients of --tls-port have to show a certificate [default: yes if
    /// --tls-ca-cert-file is given]
    #[arg(long, env = "FUSEE_TLS_AUTH_CLIENTS", value_enum, value_name = "YES|NO|OPTIONAL")]
    tls_auth_clients: Option<ClientCertificates>,
    /// Threads that serve clients [default: one for each processor]
    #[arg(long, env = "FUSEE_WORKERS", value_name = "COUNT")]
    workers: Option<usize>,
    /// Send to clients and receive from them by io_uring, which costs less than polling
    /// their sockets; Linux 6.1 or newer, and containers often forbid it [default: auto]
    #[arg(long, env = "FUSEE_IO_URING", value_enum, value_name = "AUTO|YES|NO")]
    io_uring: Option<IoUring>,
    /// Join the pool that this file describes, whose memory nodes are processes of their
    /// own (see mnd --help) [default: memory nodes within this process]
    #[arg(long, env = "FUSEE_POOL", value_name = "FILE")]
    pool: Option<PathBuf>,
    /// Address where other gateways of the pool bring what is published there; one that
    /// other machines reach needs --insecure, as messages are not encrypted [default:
    /// with --insecure the one that leads to the memory nodes, else 127.0.0.1]
    #[arg(long, env = "FUSEE_PEER_ADDRESS", value_name = "ADDRESS")]
    peer_address: Option<IpAddr>,
    /// Speak to the pool's memory nodes without TLS even where others could hear it
    #[arg(
        long, env = "FUSEE_INSECURE", value_name = "BOOL", num_args = 0..=1,
        default_missing_value = "true", require_equals = true
    )]
    insecure: Option<bool>,
    /// With a pool on fabric = "verbs", the RDMA device to use [default: the first that can
    /// be used]
    #[arg(long, env = "FUSEE_DEVICE", value_name = "NAME")]
    device: Option<String>,
    /// With a pool on fabric = "verbs", the device's address to use [default: its first]
    #[arg(long, env = "FUSEE_DEVICE_ADDRESS", value_name = "ADDRESS")]
    device_address: Option<IpAddr>,
    /// Memory of all embedded memory nodes together, such as 4GiB or 512MiB; taken
    /// from the system as it fills [default: a quarter of this machine's]
    #[arg(long, env = "FUSEE_MEMORY", value_name = "SIZE")]
    memory: Option<Size>,
    /// Copies of every key, each on another memory node, 1 to 4 [default: 1]
    #[arg(long, env = "FUSEE_REPLICAS", value_name = "COUNT")]
    replicas: Option<u8>,
    /// Embedded memory nodes; as many as replicas at least [default: 1]
    #[arg(long, env = "FUSEE_MEMORY_NODES", value_name = "COUNT")]
    memory_nodes: Option<u16>,
    /// Keys whose place each worker remembers, which saves a round trip; 16 bytes each
    /// [default: 4194304]
    #[arg(long, env = "FUSEE_INDEX_CACHE", value_name = "ENTRIES")]
    index_cache: Option<usize>,
    /// Clients that may be connected at a time [default: 10000]
    #[arg(long, env = "FUSEE_MAX_CLIENTS", value_name = "COUNT")]
    max_clients: Option<usize>,
    /// Password of the default user; better by the variable or the file, since every
    /// user of this machine can see the flags [default: none]
    #[arg(long, env = "FUSEE_REQUIREPASS", value_name = "PASSWORD", hide_env_values = true)]
    requirepass: Option<String>,
    /// Read users from this file at start and by ACL LOAD, write them by ACL SAVE; give
    /// every gateway the same [default: only the default user]
    #[arg(long, env = "FUSEE_ACLFILE", value_name = "FILE")]
    aclfile: Option<PathBuf>,
    /// Tell who subscribes what happens to keys: Redis's letters, such as KEA; give every
    /// gateway the same, since each tells of its own writes [default: none]
    #[arg(long, env = "FUSEE_NOTIFY_KEYSPACE_EVENTS", value_name = "CLASSES")]
    notify_keyspace_events: Option<String>,
    /// Let clients use DEBUG, for tests [default: no]
    #[arg(long, env = "FUSEE_ENABLE_DEBUG_COMMAND", value_enum, value_name = "YES|NO")]
    enable_debug_command: Option<YesNo>,
    /// While there is no password, serve only clients of this machine [default: yes]
    #[arg(long, env = "FUSEE_PROTECTED_MODE", value_enum, value_name = "YES|NO")]
    protected_mode: Option<YesNo>,
    /// Close a connection that was silent for so long; 0 never does [default: 0]
    #[arg(long, env = "FUSEE_TIMEOUT", value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Replies that may wait for a client that does not read them; with more it is not
    /// served until it reads, and closed after a minute [default: 64MiB]
    #[arg(long, env = "FUSEE_OUTPUT_LIMIT", value_name = "SIZE")]
    output_limit: Option<Size>,
    /// After SIGTERM, how long connections may take to end [default: 10]
    #[arg(long, env = "FUSEE_DRAIN", value_name = "SECONDS")]
    drain: Option<u64>,
    /// Address for /metrics, /livez and /readyz [default: 127.0.0.1]
    #[arg(long, env = "FUSEE_METRICS_BIND", value_name = "ADDRESS")]
    metrics_bind: Option<IpAddr>,
    /// Port for /metrics, /livez and /readyz; 0 turns them off [default: 9379]
    #[arg(long, env = "FUSEE_METRICS_PORT", value_name = "PORT")]
    metrics_port: Option<u16>,
    /// How log lines look [default: text]
    #[arg(long, env = "FUSEE_LOG_FORMAT", value_enum, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// error, warn, info, debug or trace, or a filter such as gateway=debug [default: info]
    #[arg(long, env = "FUSEE_LOG_LEVEL", value_name = "LEVEL")]
    log_level: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let system = crate::command::info::system_bytes();
        Self {
            bind: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            port: 6379,
            tls: None,
            workers: cores.min(WORKERS_MAX),
            io_uring: IoUring::Auto,
            memory_bytes: if system == 0 { 1 << 30 } else { (system / 4).max(NODE_BYTES_MIN) },
            replicas: 1,
            memory_nodes: 1,
            pool: None,
            peer_address: None,
            insecure: false,
            device: DeviceChoice::default(),
            index_cache: 1 << 22,
            max_clients: 10_000,
            require_pass: String::new(),
            acl_file: None,
            protected_mode: true,
            notify_keyspace_events: String::new(),
            enable_debug_command: false,
            timeout_s: 0,
            output_limit_bytes: 64 << 20,
            query_limit_bytes: 1 << 30,
            drain_s: 10,
            metrics_bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            metrics_port: Some(9379),
            log_format: LogFormat::Text,
            log_level: "info".to_owned(),
        }
    }
}

impl Config {
    /// Reads flags, environment and file.
    ///
    /// # Errors
    /// With what to do about it; also when only --help or --version was asked
    /// for, as clap's error that prints it.
    pub fn from_arguments<A, T>(arguments: A) -> Result<Self, ConfigError>
    where
        A: IntoIterator<Item = T>,
        T: Into<std::ffi::OsString> + Clone,
    {
        let matches = Flags::command().try_get_matches_from(arguments)?;
        let flags = Flags::from_arg_matches(&matches)?;
        let mut config = Self::default();
        let embedded = |layer: &Layer| {
            layer.memory.is_some() || layer.replicas.is_some() || layer.memory_nodes.is_some()
        };
        let mut sized = embedded(&flags.layer);
        let mut tls = TlsFlags::default();
        if let Some(path) = flags.config {
            let text = std::fs::read_to_string(&path)
                .map_err(|source| ConfigError::Read { path: path.clone(), source })?;
            let layer: Layer = toml::from_str(&text)
                .map_err(|source| ConfigError::Parse { path, source: Box::new(source) })?;
            sized |= embedded(&layer);
            tls.lay(&layer);
            config.lay(layer);
        }
        tls.lay(&flags.layer);
        config.lay(flags.layer);
        config.tls = tls.files()?;
        if sized && config.pool.is_some() {
            return Err(ConfigError::Value(
                "memory, replicas and memory-nodes are for embedded memory nodes: with --pool \
                 they are in the pool file"
                    .to_owned(),
            ));
        }
        config.check()?;
        Ok(config)
    }

    /// The pool to join, if there is one, and its certificates.
    ///
    /// # Errors
    /// With what to do about the pool file or its certificates.
    pub fn pool(&self) -> Result<Option<(PoolFile, Option<Tls>)>, String> {
        let Some(path) = &self.pool else { return Ok(None) };
        let file = PoolFile::read(path).map_err(|error| error.to_string())?;
        let tls = file.tls(self.insecure).map_err(|error| error.to_string())?;
        Ok(Some((file, tls)))
    }

    /// Puts what a source gives over what there is.
    fn lay(&mut self, layer: Layer) {
        fn put<T>(place: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *place = value;
            }
        }
        put(&mut self.bind, layer.bind);
        put(&mut self.port, layer.port);
        put(&mut self.workers, layer.workers);
        put(&mut self.io_uring, layer.io_uring);
        put(&mut self.memory_bytes, layer.memory.map(|size| size.0));
        put(&mut self.replicas, layer.replicas);
        put(&mut self.memory_nodes, layer.memory_nodes);
        put(&mut self.pool, layer.pool.map(Some));
        put(&mut self.peer_address, layer.peer_address.map(Some));
        put(&mut self.insecure, layer.insecure);
        put(&mut self.device.name, layer.device.map(Some));
        put(&mut self.device.address, layer.device_address.map(Some));
        put(&mut self.index_cache, layer.index_cache);
        put(&mut self.max_clients, layer.max_clients);
        put(&mut self.require_pass, layer.requirepass);
        put(&mut self.acl_file, layer.aclfile.map(Some));
        put(&mut self.protected_mode, layer.protected_mode.map(|answer| answer == YesNo::Yes));
        put(&mut self.notify_keyspace_events, layer.notify_keyspace_events);
        put(&mut self.enable_debug_command, layer.enable_debug_command.map(|a| a == YesNo::Yes));
        put(&mut self.timeout_s, layer.timeout);
        put(&mut self.output_limit_bytes, layer.output_limit.map(|size| size.0 as usize));
        put(&mut self.drain_s, layer.drain);
        put(&mut self.metrics_bind, layer.metrics_bind);
        put(&mut self.metrics_port, layer.metrics_port.map(Some));
        put(&mut self.log_format, layer.log_format);
        put(&mut self.log_level, layer.log_level);
    }

    fn check(&self) -> Result<(), ConfigError> {
        let nodes = self.memory_nodes;
        let refuse = |text: String| Err(ConfigError::Value(text));
        if Classes::parse(&self.notify_keyspace_events).is_none() {
            return refuse(format!(
                "notify-keyspace-events: '{}' has a letter that is no class: use 'Ag$lshzxeKEtmdn'",
                self.notify_keyspace_events
            ));
        }
        if self.bind.is_empty() {
            return refuse("bind names no address: give one, such as --bind 127.0.0.1".to_owned());
        }
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            return refuse(format!(
                "workers is {}: choose 1 to {WORKERS_MAX}, best one for each processor",
                self.workers
            ));
        }
        if !(1..=REPLICAS_MAX).contains(&self.replicas) {
            return refuse(format!("replicas is {}: choose 1 to {REPLICAS_MAX}", self.replicas));
        }
        if !(1..=MEMORY_NODES_MAX).contains(&nodes) {
            return refuse(format!("memory-nodes is {nodes}: choose 1 to {MEMORY_NODES_MAX}"));
        }
        if u16::from(self.replicas) > nodes {
            return refuse(format!(
                "{} replicas need as many memory nodes, and there are {nodes}: raise --memory-nodes or lower --replicas",
                self.replicas
            ));
        }
        let least = u64::from(nodes) * NODE_BYTES_MIN;
        if self.memory_bytes < least {
            return refuse(format!(
                "memory is {} for {nodes} memory nodes: give at least {} (64MiB a node)",
                Size(self.memory_bytes),
                Size(least)
            ));
        }
        if let Some(ip) = self.peer_address.filter(|ip| !ip.is_loopback() && !self.insecure) {
            return refuse(format!(
                "peer-address {ip} is reached from other machines, and messages between \
                 gateways are not encrypted: say --insecure if nobody else is on that network"
            ));
        }
        if self.peer_address.is_some_and(|ip| ip.is_unspecified()) {
            return refuse(
                "peer-address is told to other gateways: name an address of this machine by which \
                 they reach it"
                    .to_owned(),
            );
        }
        if self.max_clients == 0 {
            return refuse("max-clients is 0: give at least 1".to_owned());
        }
        Ok(())
    }
}

/// The flags about TLS, which make sense together.
#[derive(Default)]
struct TlsFlags {
    port: Option<u16>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    authority: Option<PathBuf>,
    clients: Option<ClientCertificates>,
}

impl TlsFlags {
    /// Puts what a source gives over what there is.
    fn lay(&mut self, layer: &Layer) {
        fn put<T: Clone>(place: &mut Option<T>, value: &Option<T>) {
            if value.is_some() {
                place.clone_from(value);
            }
        }
        put(&mut self.port, &layer.tls_port);
        put(&mut self.certificate, &layer.tls_cert_file);
        put(&mut self.key, &layer.tls_key_file);
        put(&mut self.authority, &layer.tls_ca_cert_file);
        put(&mut self.clients, &layer.tls_auth_clients);
    }

    fn files(self) -> Result<Option<TlsFiles>, ConfigError> {
        let Self { port: Some(port), certificate, key, authority, clients } = self else {
            return Ok(None);
        };
        let (Some(certificate), Some(key)) = (certificate, key) else {
            return Err(ConfigError::Value(
                "tls-port needs a certificate and its key: name their files by --tls-cert-file \
                 and --tls-key-file"
                    .to_owned(),
            ));
        };
        let default =
            if authority.is_some() { ClientCertificates::Yes } else { ClientCertificates::No };
        let clients = clients.unwrap_or(default);
        Ok(Some(TlsFiles { port, certificate, key, authority, clients }))
    }
}

#[cfg(test)]
mod tests;
