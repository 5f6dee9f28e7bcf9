"""Triton from the wheel of PyTriton, with four instances of a Python model: python triton_server.py FOLDER PORT."""

import os
import shutil
import sys
from pathlib import Path

import pytriton

CONFIG = """
backend: "python"
default_model_filename: "triton_instance.py"
instance_group [{ count: 4, kind: KIND_CPU }]
output [{ name: "answer", data_type: TYPE_STRING, dims: [1] }]
"""
programs, package, folder = Path(__file__).parent, Path(pytriton.__file__).parent, Path(sys.argv[1])
version = folder / "models/answer/1"
version.mkdir(parents=True)
shutil.copy(programs / "triton_instance.py", version)
(version.parent / "config.pbtxt").write_text(CONFIG)
stub = f"python_backend_stubs/{sys.version_info.major}.{sys.version_info.minor}/triton_python_backend_stub"
shutil.copytree(package / "tritonserver/backends", folder / "backends")
shutil.copy(package / "tritonserver" / stub, folder / "backends/python")
environment = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # the backend runs this environment's python3
    "LD_LIBRARY_PATH": f"{sys.base_prefix}/lib:{package.parent}/nvidia_pytriton.libs",
    "PROGRAMS": str(programs),
}
places = [f"--model-repository={folder}/models", f"--backend-directory={folder}/backends"]
ports = ["--http-address=127.0.0.1", f"--http-port={sys.argv[2]}", "--allow-grpc=false", "--allow-metrics=false"]
os.execve(package / "tritonserver/bin/tritonserver", ["tritonserver", *places, *ports], environment)
