"""A server that only looks: OpenMetrics at ``/metrics``, a live page at ``/``, a look as JSON at ``/look``.

There is nothing to write to, and nothing that comes with a request is used but the token that lets it in. The page
shows names as text, whatever is in them, and its policy forbids it to load or to run anything else. Requests for
another host's name are refused, so that no page of the web can read it through a browser on this machine.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from onecopy.files import Closeable
from onecopy.memory.containers import container

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.applications import Starlette

    from onecopy.memory.containers import Container
    from onecopy.memory.sampling.sampler import Sampler
    from onecopy.memory.snapshots import Snapshot

__all__ = ["Looks", "application"]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'"
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_KINDS = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
_SHOWN = 40
"""Processes on the page, those with the largest shares; files as well."""


class Looks(Closeable):
    """Looks that many may ask for, made no more often than `every`; any thread may ask. Owns the sampler.

    Parameters
    ----------
    sampler
        Looks.
    every
        Seconds for which a look is good.
    pid
        Whose control group is told; None: none.
    """

    def __init__(self, sampler: Sampler, every: float = 1.0, pid: int | None = None) -> None:
        self._sampler, self._every, self._pid = sampler, every, pid
        self._lock = threading.Lock()
        self._at = 0.0
        self._last: Snapshot | None = None

    def sample(self) -> Snapshot:
        """Return a look that is recent enough."""
        with self._lock:
            now = time.monotonic()
            if self._last is None or now - self._at >= max(self._every, self._sampler.pause):
                self._last, self._at = self._sampler.sample(), now
            return self._last

    def container(self) -> Container | None:
        """Return the control group of the process that was named; None when it has ended."""
        if self._pid is None:
            return None
        try:
            return container(self._pid)
        except (ProcessLookupError, PermissionError):
            return None

    def close(self) -> None:
        """Release the sampler."""
        with self._lock:
            self._sampler.close()


def application(looks: Looks, group: str, hosts: Sequence[str] = LOOPBACK, *, token: str | None = None) -> Starlette:
    """Return an ASGI application that serves looks; for uvicorn, or to be mounted in another one.

    Parameters
    ----------
    looks
        Where looks come from.
    group
        The label ``group`` of metrics, and the title of the page.
    hosts
        Names by which it may be asked for; "*": any.
    token
        What a request has to say (see `onecopy.memory.serving.access.Token`); None: nothing.

    Raises
    ------
    ImportError
        starlette or prometheus_client is missing: ``pip install 'onecopy[serve]'``.
    """
    from prometheus_client import CollectorRegistry
    from prometheus_client.openmetrics import exposition
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    from onecopy.memory.serving.metrics import Metrics

    registry = CollectorRegistry()
    registry.register(Metrics(looks.sample, looks.container, group))

    def metrics(_: Any) -> Response:
        return Response(
            exposition.generate_latest(registry), headers={**_HEADERS, "Content-Type": exposition.CONTENT_TYPE_LATEST}
        )

    def sample(_: Any) -> Response:
        return JSONResponse(_facts(looks.sample(), group), headers=_HEADERS)

    def file(name: str) -> Any:
        text = _page(name)
        return lambda _: Response(text, media_type=_KINDS[name], headers=_HEADERS)

    routes = [
        Route("/", file("page.html"), methods=["GET"]),
        Route("/page.css", file("page.css"), methods=["GET"]),
        Route("/page.js", file("page.js"), methods=["GET"]),
        Route("/look", sample, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
    ]
    middleware = [Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))]
    if token is not None:
        from onecopy.memory.serving.access import Token

        middleware.append(Middleware(Token, token))
    return Starlette(routes=routes, middleware=middleware)


def _page(name: str) -> str:
    from importlib.resources import files

    return files("onecopy.memory.serving").joinpath("page", name).read_text("utf-8")


def _facts(snapshot: Snapshot, group: str) -> dict[str, Any]:
    """Return what the page shows, in bytes; names as text that can be encoded."""
    from onecopy.memory.labels import label_of

    shown = sorted(snapshot.processes, key=lambda one: (-one.share, one.pid))[:_SHOWN]
    facts = snapshot.as_dict()
    return {
        "group": _text(group),
        "time": snapshot.time,
        "total": facts["totals"],
        "cost": facts["cost"],
        "count": len(snapshot.processes),
        "processes": [
            {
                "pid": one.pid,
                "name": _text(label_of(one.pid, one.name)),
                **{kind: getattr(one, kind) for kind in ("share", "anonymous", "file", "shmem", "rss", "minor_faults")},
            }
            for one in shown
        ],
        "files": [
            {
                "path": _text(one.path),
                "unknown": one.unknown,
                "mappers": len(one.pids),
                **{kind: getattr(one, kind) for kind in ("kind", "size", "mapped", "cached", "dirty", "saves")},
            }
            for one in snapshot.files[:_SHOWN]
        ],
    }


def _text(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()
