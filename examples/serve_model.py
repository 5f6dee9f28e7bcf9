"""An inference server with several workers and one copy of the weights: uvicorn, ASGI, nothing else.

    pip install onecopy onnxruntime uvicorn
    MODEL=model.onnx MODE=auto uvicorn serve_model:app --app-dir examples --workers 4
    curl -d '{"ids": [1, 2, 3]}' http://127.0.0.1:8000/

    python examples/serve_model.py model.onnx request.json   # both ways, one after the other, and what they cost

Inputs come as JSON, by name; outputs go out the same way. `GET /` reports which worker answers, and how its session was
made. The comparison serves the model as ONNX Runtime does alone (``read``) and as onecopy does (``prepacked``), and
prints the time until all workers answer, the memory of all processes, and the median time of a request.
"""

import asyncio
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import numpy as np

import onecopy as oc
from onecopy.memory import proc

WORKERS = 4
TYPES = {
    "tensor(float)": np.float32,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(double)": np.float64,
}


# --- the server -------------------------------------------------------------------------------------------------------

session = None


def answer(body: bytes) -> dict[str, object]:
    """Run the model on what a request holds; ValueError with the reason where that cannot be."""
    if not body:
        return {"worker": os.getpid(), "mode": session.onecopy.mode, "reason": session.onecopy.reason}
    given = json.loads(body)
    inputs = {one.name: np.asarray(given[one.name], TYPES[one.type]) for one in session.get_inputs()}
    outputs = session.run(None, inputs)
    return {one.name: value.tolist() for one, value in zip(session.get_outputs(), outputs, strict=True)}


async def app(scope, receive, send):
    """Speak ASGI: https://asgi.readthedocs.io."""
    global session  # noqa: PLW0603 - one per worker
    if scope["type"] == "lifespan":
        await receive()
        session = oc.onnxruntime.session(os.environ["MODEL"], os.environ.get("MODE", "auto"))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        session.close()
        await send({"type": "lifespan.shutdown.complete"})
        return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    try:
        status, told = 200, await asyncio.to_thread(answer, body)
    except Exception as error:
        status, told = 400, {"error": f"{type(error).__name__}: {error}"}
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(told).encode()})


# --- the comparison ---------------------------------------------------------------------------------------------------


def ask(port: int, body: str | None = None) -> dict[str, object]:
    """Send one request to the server; a connection of its own, so that any worker may take it."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("POST" if body else "GET", "/", body)
        return json.loads(connection.getresponse().read())


def free_port() -> int:
    """Return a port of the loopback that no process listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def served(model: str, mode: str, request: str, workers: int) -> tuple[float, int, int, float]:
    """Serve a model; return seconds until all workers answer, bytes of all processes, private ones, ms of a request."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "serve_model:app", "--app-dir", str(Path(__file__).parent)]
    options = ["--workers", str(workers), "--port", str(port), "--log-level", "warning"]
    start = time.monotonic()
    server = subprocess.Popen([*command, *options], env={**os.environ, "MODEL": model, "MODE": mode})
    try:
        answered: set[object] = set()
        while len(answered) < workers:
            if server.poll() is not None or time.monotonic() - start > 300:
                raise SystemExit("the server did not start")
            with suppress(OSError):
                told = ask(port)
                if told["mode"] != mode:
                    raise SystemExit(f"a worker is {told['mode']!r}: {told['reason']}")
                answered.add(told["worker"])
        seconds = time.monotonic() - start
        times = []
        for _ in range(20 * workers):
            before = time.perf_counter()
            ask(port, request)
            times.append((time.perf_counter() - before) * 1e3)
        memory = [proc.rollup(pid) for pid in answered]
        return seconds, sum(m.pss for m in memory), sum(m.anonymous for m in memory), statistics.median(times)
    finally:
        server.terminate()
        server.wait()


def main(model: str, request: str, workers: int = WORKERS) -> None:
    """Serve the model both ways and print what they cost."""
    with oc.onnxruntime.session(model, "prepacked", wait=True) as prepacked:  # as when an image is built
        print(prepacked.onecopy)
    print(f"\n{workers} workers      ready   memory        private per request")
    for mode in ("read", "prepacked"):
        seconds, pss, private, latency = served(model, mode, request, workers)
        print(f"{mode:10} {seconds:7.2f} s {pss / 1e6:5.0f} MB {private / 1e6:11.0f} MB {latency:8.1f} ms")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: serve_model.py MODEL.onnx REQUEST.json [WORKERS]")
    main(sys.argv[1], Path(sys.argv[2]).read_text(), int((*sys.argv, WORKERS)[3]))
