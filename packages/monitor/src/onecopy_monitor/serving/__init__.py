"""A read-only server with OpenMetrics at ``/metrics``, a live page at ``/``, and a JSON snapshot at ``/snapshot``.

The token is the only part of a request that the server uses as input. The page shows names of processes and files as
text, and its content security policy prevents it from loading or running anything else. Requests for other host names
are rejected, so that other sites' pages cannot read the data through a browser on this machine (DNS rebinding).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from onecopy.files.mapping import Closeable
from onecopy.memory.cgroup import container

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.applications import Starlette

    from onecopy.memory.cgroup import Container
    from onecopy_monitor.sampling.sampler import Sampler
    from onecopy_monitor.snapshots import Snapshot

__all__ = ["SnapshotSource", "application"]

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
"""Maximum number of processes, and of files, on the page, which shows those with the largest shares."""


class SnapshotSource(Closeable):
    """Snapshots that several threads may request, taken at most once every `interval` seconds. Owns the sampler.

    Parameters
    ----------
    sampler
        The sampler that takes the snapshots.
    interval
        Seconds for which a snapshot is reused.
    pid
        The process whose control group is reported; None: no control group is reported.
    """

    def __init__(self, sampler: Sampler, interval: float = 1.0, pid: int | None = None) -> None:
        self._sampler, self._interval, self._pid = sampler, interval, pid
        self._lock = threading.Lock()
        self._at = 0.0
        self._last: Snapshot | None = None

    def sample(self) -> Snapshot:
        """Return the last snapshot if it is recent enough, or otherwise a new one."""
        with self._lock:
            now = time.monotonic()
            if self._last is None or now - self._at >= max(self._interval, self._sampler.pause):
                self._last, self._at = self._sampler.sample(), now
            return self._last

    def container(self) -> Container | None:
        """Return the control group of the process `pid`, or None if there is no group or the process has ended."""
        if self._pid is None:
            return None
        try:
            return container(self._pid)
        except (ProcessLookupError, PermissionError):
            return None

    def close(self) -> None:
        """Close the sampler."""
        with self._lock:
            self._sampler.close()


def application(
    snapshots: SnapshotSource, group: str, hosts: Sequence[str] = LOOPBACK, *, token: str | None = None
) -> Starlette:
    """Return an ASGI application that serves snapshots, for uvicorn or to be mounted in another application.

    Parameters
    ----------
    snapshots
        Source of the snapshots.
    group
        The label ``group`` of the metrics, which is also the title of the page.
    hosts
        Accepted host names; "*": any host.
    token
        The token that requests must contain (see `onecopy_monitor.serving.access.Token`); None: no token is needed.

    Raises
    ------
    ImportError
        starlette or prometheus_client is missing: ``pip install 'onecopy-monitor[serve]'``.
    """
    from prometheus_client import CollectorRegistry
    from prometheus_client.openmetrics import exposition
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    from onecopy_monitor.serving.metrics import Metrics

    registry = CollectorRegistry()
    registry.register(Metrics(snapshots.sample, snapshots.container, group))

    def metrics(_: Any) -> Response:
        return Response(
            exposition.generate_latest(registry), headers={**_HEADERS, "Content-Type": exposition.CONTENT_TYPE_LATEST}
        )

    def sample(_: Any) -> Response:
        return JSONResponse(_facts(snapshots.sample(), group), headers=_HEADERS)

    def file(name: str) -> Any:
        text = _page(name)
        return lambda _: Response(text, media_type=_KINDS[name], headers=_HEADERS)

    routes = [
        Route("/", file("page.html"), methods=["GET"]),
        Route("/page.css", file("page.css"), methods=["GET"]),
        Route("/page.js", file("page.js"), methods=["GET"]),
        Route("/snapshot", sample, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
    ]
    middleware = [Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))]
    if token is not None:
        from onecopy_monitor.serving.access import Token

        middleware.append(Middleware(Token, token))
    return Starlette(routes=routes, middleware=middleware)


def _page(name: str) -> str:
    from importlib.resources import files

    return files("onecopy_monitor.serving").joinpath("page", name).read_text("utf-8")


def _facts(snapshot: Snapshot, group: str) -> dict[str, Any]:
    """Return the data of the page, with undecodable characters in names escaped."""
    from onecopy.memory.proc import label_of

    shown = sorted(snapshot.processes, key=lambda one: (-one.share, one.pid))[:_SHOWN]
    values = snapshot.as_dict()
    return {
        "group": _text(group),
        "time": snapshot.time,
        "total": values["totals"],
        "cost": values["cost"],
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
