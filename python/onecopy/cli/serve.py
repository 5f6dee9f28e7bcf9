"""`onecopy serve`: the memory of a group as OpenMetrics, and as a live page."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from typing import Any

import click

from onecopy.cli.top import FIRST_S, duration
from onecopy.monitor import Sampler
from onecopy.monitor.serving import LOOPBACK, Looks, application

NEEDS = "the server needs starlette, uvicorn and prometheus-client: pip install 'onecopy[serve]'"


@click.command("serve")
@click.argument("pids", nargs=-1, type=click.IntRange(min=1), metavar="[PID]...")
@click.option("--tree", is_flag=True, help="Descendants of the processes too.")
@click.option("--match", metavar="REGEX", help="Processes whose command line contains this.")
@click.option("--cgroup", "group", metavar="GROUP", help="Processes in this control group or below.")
@click.option("--file", "mapping", type=click.Path(), metavar="PATH", help="Everyone who maps this file.")
@click.option("--name", help="What the group is called on the page and in labels; else what selects it.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; others than loopback are told."
)
@click.option("--port", type=click.IntRange(0, 65535), default=9477, show_default=True, help="0: any that is free.")
@click.option(
    "--allow-host", "names", multiple=True, metavar="NAME", help="A name by which it may be asked for besides."
)
@click.option("--every", default="1 s", show_default=True, callback=duration, metavar="TIME", help="Between two looks.")
@click.option("--exact", is_flag=True, help="PSS of everybody at each look: 6 to 22 ms per GiB and process.")
@click.option(
    "--budget",
    type=click.FloatRange(0, 100, min_open=True),
    default=1.0,
    show_default=True,
    metavar="PERCENT",
    help="Of one processor, that looking may cost.",
)
def command(
    *,
    pids: tuple[int, ...],
    tree: bool,
    name: str | None,
    host: str,
    port: int,
    names: tuple[str, ...],
    every: float,
    budget: float,
    **options: Any,
) -> None:
    """Serve the memory of a group of processes: OpenMetrics at /metrics, a live page at /.

    Which processes is told as for `onecopy top`. It looks when it is asked to, listens on this machine only unless
    --host says otherwise, and has nothing that could be written to: no passwords either, so keep it from strangers.
    """
    try:
        import uvicorn
    except ImportError:
        raise click.ClickException(NEEDS) from None
    with contextlib.suppress(OSError, ValueError):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    title = name or _title(pids, options)
    sampler = Sampler(pids or None, children=tree, budget=budget / 100, at_first=FIRST_S, **options)
    with Looks(sampler, every, pids[0] if pids else None) as looks, _listening(host, port) as listener:
        try:
            served = application(looks, title, (*LOOPBACK, host, *names))
        except ImportError:
            raise click.ClickException(NEEDS) from None
        where = listener.getsockname()
        shown = f"[{where[0]}]" if ":" in where[0] else where[0]
        click.echo(f"onecopy: {title} at http://{shown}:{where[1]}/ and /metrics; Ctrl-C ends it", err=True)
        if host not in LOOPBACK:
            click.echo("onecopy: warning: not only this machine can read it, and it asks for no password", err=True)
        config = uvicorn.Config(
            served, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=1
        )
        uvicorn.Server(config).run(sockets=[listener])


def _title(pids: tuple[int, ...], options: dict[str, Any]) -> str:
    told = [f"process {', '.join(map(str, pids))}"] if pids else []
    told += [f"{word} {options[key]}" for key, word in (("match", "match"), ("group", "cgroup")) if options[key]]
    if options["mapping"]:
        told.append(f"who maps {os.path.basename(options['mapping'])}")  # noqa: PTH119 - text
    return ", ".join(told) or socket.gethostname()


@contextlib.contextmanager
def _listening(host: str, port: int) -> Any:
    """Listen, before anything is said: a port that is taken is an error of one line."""
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
