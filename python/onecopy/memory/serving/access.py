"""Who may ask a server, and how much of it: a token, and limits for connections that ask nothing."""

from __future__ import annotations

import hmac
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from starlette.responses import RedirectResponse, Response
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

    from starlette.types import ASGIApp, Receive, Scope, Send

MOST_CONNECTIONS = 64
"""At one time; others are closed at once."""
SECONDS = 30.0
"""After so long a connection is closed, unless an answer is on its way: a browser makes a new one without a word."""


class Token:
    """ASGI middleware: answers 401 to who does not say the token.

    It is said as ``Authorization: Bearer TOKEN``, which Prometheus has a setting for, or once as ``?token=TOKEN``: that
    makes a cookie of it, for the page and what it loads, and leads to the same address without it.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the application answer."""
        await (self._answer(scope) if scope["type"] == "http" else self._app)(scope, receive, send)

    def _answer(self, scope: Scope) -> ASGIApp:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        cookie = f"onecopy-{scope['server'][1]}"  # of each port its own: to a browser they are one host
        if self._is_right(parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]):
            known = RedirectResponse(scope["path"], 303)
            known.set_cookie(cookie, self._token, httponly=True, samesite="strict")
            return known
        kept = SimpleCookie(headers.get(b"cookie", "")).get(cookie)
        said = headers.get(b"authorization", "").removeprefix("Bearer ")
        if self._is_right(said) or (kept is not None and self._is_right(kept.value)):
            return self._app
        words = "this server wants the token that it printed: ?token=... or Authorization: Bearer ...\n"
        return Response(words, 401, {"WWW-Authenticate": "Bearer"}, "text/plain")

    def _is_right(self, said: str) -> bool:
        return hmac.compare_digest(said.encode("utf-8", "replace"), self._token.encode())


class Limited(H11Protocol):  # type: ignore[misc,unused-ignore]  # uvicorn may be missing where this is checked
    """uvicorn's protocol, for a bounded number of connections that live for a bounded time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override,unused-ignore]
        """Take a connection, or close it."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
            return
        self._end: Any = self.loop.call_later(SECONDS, self.shutdown)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        end = getattr(self, "_end", None)
        if end is not None:
            end.cancel()
        super().connection_lost(exc)
