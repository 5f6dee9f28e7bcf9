"""A server that answers as the hub of Hugging Face does, and downloads from it by the hub's own functions."""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from tests.support.children import run_python
from tests.support.object_server import Request, serving

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "organisation/model"

DOWNLOAD = """
import os, sys
os.environ |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "127.0.0.1"}
import huggingface_hub
url, repository, folder, kind = sys.argv[1:]
place = {"local_dir": folder + "/local"} if kind == "local" else {}
found = huggingface_hub.snapshot_download(repository, endpoint=url, cache_dir=folder + "/cache", **place)
if kind == "shared":
    from huggingface_hub.utils import _shared_blobs as blobs
    for name in os.listdir(found):
        blob = os.path.realpath(os.path.join(found, name))
        size = {"expected_size": os.path.getsize(blob)}
        digest = os.path.basename(blob).ljust(64, "0")
        assert blobs.publish_blob_to_shared_store(blob_path=blob, xet_hash=digest, cache_dir=folder + "/cache", **size)
print(found)
"""


@contextlib.contextmanager
def serving_hub(source: Path) -> Iterator[str]:
    """Serve the files of a folder as one repository of the hub; give the address."""
    files = {one.name: one.read_bytes() for one in source.iterdir()}
    tags = {name: hashlib.sha1(content).hexdigest() for name, content in files.items()}
    tree = [{"type": "file", "path": name, "size": len(files[name]), "oid": tags[name]} for name in files]
    about = {"id": REPOSITORY, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
    about |= {"private": False, "downloads": 0, "likes": 0, "tags": []}  # wanted by versions before 0.23

    def add(request: Request) -> None:
        name = request.path.rpartition("/")[2]
        objects.headers[request.path] = {"X-Repo-Commit": COMMIT, "X-Error-Code": "EntryNotFound"}
        if request.path.startswith("api/"):
            answer = tree if "/tree/" in request.path else about
            objects.put(request.path, json.dumps(answer).encode())
        elif "/resolve/" in request.path and name in files:
            objects.put(request.path, files[name])
            objects.headers[request.path] = {"X-Repo-Commit": COMMIT}
            objects.tags[request.path] = f'"{tags[name]}"'

    with serving() as objects:
        objects.on_request = add
        yield objects.url


def downloaded(source: Path, folder: Path, kind: str) -> Path:
    """Download a folder by huggingface_hub, and return where it put the files.

    `kind`: "cache"; "shared", whose blobs are links into a folder for all repositories; or "local", a `local_dir`.
    """
    with serving_hub(source) as url:
        return Path(run_python(DOWNLOAD, url, REPOSITORY, str(folder), kind).strip())
