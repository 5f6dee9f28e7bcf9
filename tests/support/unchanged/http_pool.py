"""An HTTP server in front of a pool of four processes, as TorchServe has them: python http_pool.py PORT."""

import json
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import model

loaded = []


def start():
    loaded.append(model.load())


def answer():
    return model.answer(loaded[0])


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        text = json.dumps(pool.submit(answer).result()).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with ProcessPoolExecutor(4, initializer=start) as pool:
        ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
