"""Servers of WSGI and ASGI that load the model when they are imported, and have no line about onecopy."""

import json

import model

loaded = model.load()
trained = []


def answered() -> bytes:
    return json.dumps({**model.answer(loaded), "trained": bool(trained)}).encode()


def app(environ, start):
    """Answer a request; ``/train`` does one step of training before, once in each worker."""
    if environ["PATH_INFO"] == "/train" and not trained:
        model.train(loaded)
        trained.append(True)
    start("200 OK", [("Content-Type", "application/json")])
    return [answered()]


async def asgi(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": answered()})
