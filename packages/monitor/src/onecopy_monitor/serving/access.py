"""Access control of the server: a token, and limits on the number and the duration of connections."""

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

MAX_CONNECTIONS = 64
"""Maximum number of open connections. A further connection replaces the oldest one that has not sent the token."""
_AUTHENTICATED = "onecopy.authenticated"
"""Key that is set in the scope of a request that contains the token."""
SECONDS = 30.0
"""Seconds after which a connection is closed when its response has been sent. Browsers reconnect automatically."""


class Token:
    """ASGI middleware that responds with 401 to requests without the token.

    A request contains the token as ``Authorization: Bearer TOKEN``, which Prometheus supports, or as ``?token=TOKEN``,
    which sets a cookie for the page and its resources and redirects to the same address without the token.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, or respond with 401 or a redirect."""
        await (self._answer(scope) if scope["type"] == "http" else self._app)(scope, receive, send)

    def _answer(self, scope: Scope) -> ASGIApp:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        cookie = f"onecopy-{scope['server'][1]}"  # browsers share cookies between the ports of a host
        if self._is_right(parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]):
            known = RedirectResponse("/" + scope["path"].lstrip("/\\"), 303)  # "//host" would be another server
            known.set_cookie(cookie, self._token, httponly=True, samesite="strict")
            return known
        kept = SimpleCookie(headers.get(b"cookie", "")).get(cookie)
        given = headers.get(b"authorization", "").removeprefix("Bearer ")
        if self._is_right(given) or (kept is not None and self._is_right(kept.value)):
            scope[_AUTHENTICATED] = True
            return self._app
        words = "missing or wrong token: use the printed one, as ?token=... or Authorization: Bearer ...\n"
        return Response(words, 401, {"WWW-Authenticate": "Bearer"}, "text/plain")

    def _is_right(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode())


class Limited(H11Protocol):  # type: ignore[misc,unused-ignore]  # uvicorn may be missing where this is checked
    """The HTTP protocol of uvicorn, with limits on the number and the duration of connections."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override,unused-ignore]
        """Accept a connection. If there are too many, close the oldest one without the token, or else this one."""
        super().connection_made(transport)
        self._end: Any = self.loop.call_later(SECONDS, self.shutdown)
        connections = [one for one in self.connections if not one.transport.is_closing()]
        if len(connections) > MAX_CONNECTIONS:
            strangers = (one for one in connections if not (one.scope or {}).get(_AUTHENTICATED))
            min(strangers, key=lambda one: one._end.when()).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel a closed connection's timeout."""
        end = getattr(self, "_end", None)
        if end is not None:
            end.cancel()
        super().connection_lost(exc)
