"""A server that answers as the hub of Hugging Face does, and downloads from it by the hub's own functions."""

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.children import run_python

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

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path.startswith("/api/") and "/tree/" in path:
                sizes = {name: len(content) for name, content in files.items()}
                found = [{"type": "file", "path": name, "size": sizes[name], "oid": digest(name)} for name in files]
                self.send(json.dumps(found).encode(), "listing")
            elif path.startswith("/api/"):
                found = {"id": REPOSITORY, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
                found |= {"private": False, "downloads": 0, "likes": 0, "tags": []}  # wanted by versions before 0.23
                self.send(json.dumps(found).encode(), "information")
            else:
                name = path.rpartition("/")[2]
                self.send(files[name], digest(name))

        def send(self, content: bytes, tag: str) -> None:
            self.send_response(200)
            self.send_header("ETag", f'"{tag}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

    def digest(name: str) -> str:
        return hashlib.sha1(files[name]).hexdigest()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def downloaded(source: Path, folder: Path, kind: str) -> Path:
    """Download a folder by huggingface_hub, and return where it put the files.

    `kind`: "cache"; "shared", whose blobs are links into a folder for all repositories; or "local", a `local_dir`.
    """
    with serving_hub(source) as url:
        return Path(run_python(DOWNLOAD, url, REPOSITORY, str(folder), kind).strip())
