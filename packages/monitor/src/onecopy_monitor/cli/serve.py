"""`onecopy serve`: serve the memory of a group of processes as OpenMetrics and on a live page."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from typing import Any

import click

from onecopy_monitor.cli import groups
from onecopy_monitor.serving import LOOPBACK, SnapshotSource, application

NEEDS = "the server requires starlette, uvicorn and prometheus-client: pip install 'onecopy-monitor[serve]'"


@click.command("serve")
@groups.which
@click.option("--name", help="Name of the group on the page and in labels; default: the options that select it.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; a warning is printed unless it is loopback.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=9477, show_default=True, help="Port; 0: any free port.")
@click.option(
    "--allow-host", "names", multiple=True, metavar="NAME", help="Also accept requests for host NAME. Repeatable."
)
@click.option(
    "--token", envvar="ONECOPY_TOKEN", help="Token that requests must contain; default: a new one, which is printed."
)
@click.option("--no-token", is_flag=True, help="Accept all requests, even those of other users of this machine.")
@groups.rate
def command(
    *,
    pids: tuple[int, ...],
    tree: bool,
    name: str | None,
    host: str,
    port: int,
    names: tuple[str, ...],
    token: str | None,
    no_token: bool,
    interval: float,
    budget: float,
    **options: Any,
) -> None:
    """Serve the memory of a group of processes, with OpenMetrics at /metrics and a live page at /.

    The processes are selected as for `onecopy top`, and sampled when a request arrives. The server is read-only, and
    listens on loopback unless --host is given.

    Requests need a token: browsers use the printed address, Prometheus needs `authorization: {credentials: TOKEN}` in
    its configuration, and other clients send the header `Authorization: Bearer TOKEN`.
    """
    if no_token and token is not None:
        raise click.UsageError("--token and --no-token cannot be combined")
    secret = None if no_token else token or secrets.token_urlsafe(18)
    try:
        import uvicorn
    except ImportError:
        raise click.ClickException(NEEDS) from None
    title = name or _title(pids, options)
    sampler = groups.sampler_of(pids, tree=tree, budget=budget, **options)
    with SnapshotSource(sampler, interval, pids[0] if pids else None) as snapshots, _listening(host, port) as listener:
        try:
            served = application(snapshots, title, (*LOOPBACK, host, *names), token=secret)
            from onecopy_monitor.serving.access import Limited
        except ImportError:
            raise click.ClickException(NEEDS) from None
        where = listener.getsockname()
        shown = f"[{where[0]}]" if ":" in where[0] else where[0]
        address = f"http://{shown}:{where[1]}/"
        link = f"{address}?token={secret}" if secret else address

        class Announced(uvicorn.Server):  # type: ignore[misc,unused-ignore]  # the type checker may lack uvicorn
            """A server that prints its address once it handles signals; until then, Python may ignore Ctrl-C."""

            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                click.echo(f"onecopy: {title} at {link} ; metrics at {address}metrics; Ctrl-C stops it", err=True)
                if no_token:
                    click.echo("onecopy: warning: without a token, any local user can read the page", err=True)
                elif host not in LOOPBACK:
                    click.echo("onecopy: warning: other machines can connect, and nothing is encrypted", err=True)

        config = uvicorn.Config(
            served,
            http=Limited,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        Announced(config).run(sockets=[listener])


def _title(pids: tuple[int, ...], options: dict[str, Any]) -> str:
    parts = [f"process {', '.join(map(str, pids))}"] if pids else []
    parts += [f"{word} {options[key]}" for key, word in (("regex", "regex"), ("group", "cgroup")) if options[key]]
    if options["mapping"]:
        parts.append(f"processes that map {os.path.basename(options['mapping'])}")  # noqa: PTH119 - text
    return ", ".join(parts) or socket.gethostname()


@contextlib.contextmanager
def _listening(host: str, port: int) -> Any:
    """Yield a listening socket. Raise click.ClickException if the port is in use, BadParameter for an unknown host."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise click.BadParameter(f"{host}: {error.strerror or error}", param_hint="--host") from None
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror}") from None
        listener.listen(64)
        yield listener
