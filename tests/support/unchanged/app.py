"""Servers of WSGI and ASGI that load the model when they are imported, and have no line about onecopy."""

import json

import model

loaded = model.load()


def answered() -> bytes:
    return json.dumps(model.answer(loaded)).encode()


def app(environ, start):
    start("200 OK", [("Content-Type", "application/json")])
    return [answered()]


async def asgi(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": answered()})
