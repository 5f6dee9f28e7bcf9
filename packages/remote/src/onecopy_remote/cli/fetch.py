"""`onecopy fetch URL...`: fetch files into the store, and print their paths."""

from __future__ import annotations

import time

import click

from onecopy.arrays import open_arrays
from onecopy.base.text import is_url, size
from onecopy.cli import options, screen
from onecopy.store import Store
from onecopy_remote import CONNECTIONS, fetch, shown


@click.command("fetch")
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@options.folder("Folder of the store.  [default: the store on disk]")
@options.names("For a URL ending with /: only objects with matching names. Repeatable.", multiple=True, default=("*",))
@click.option(
    "--connections",
    type=click.IntRange(1, 256),
    default=CONNECTIONS,
    show_default="16; four per CPU if there are fewer than four",
    help="Maximum number of concurrent requests.",
)
@click.option("--verify", is_flag=True, help="Compare each file with the checksums stored in it.")
@options.as_json()
def command(
    *,
    urls: tuple[str, ...],
    folder: str | None,
    pattern: tuple[str, ...],
    connections: int,
    verify: bool,
    as_json: bool,
) -> None:
    """Fetch each URL into this machine's store unless the store has its current version, and print the local path.

    URL begins with s3://, gs://, az:// or https://. If it ends with /, all objects directly below it are fetched. Files
    that an index or an ONNX model names are fetched, too. If a fetch is interrupted, the next call resumes it.
    `onecopy.open(URL)` opens the same files. With ONECOPY_OFFLINE=1, print the path of the newest copy in the store,
    without any request.
    """
    for url in urls:
        if not is_url(url):
            raise click.UsageError(f"{url} is not a URL that begins with s3://, gs://, az:// or https://")
    store = Store(folder)
    fetched = []
    for url in urls:
        start = time.monotonic()
        with screen.progress("fetch") as watch:
            path = fetch(url, store=store, names=pattern, connections=connections, progress=watch)
        if verify:
            with open_arrays(path) as file:
                file.verify()
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        nbytes, seconds = sum(file.stat().st_size for file in files), time.monotonic() - start
        fetched.append({"url": shown(url), "path": str(path), "bytes": nbytes, "seconds": seconds})
        if not as_json:
            screen.show_line(screen.err(), f"{shown(url)}: {size(nbytes)} in {seconds:.3g} s")
            click.echo(str(path))
    if as_json:
        options.show_json(fetched)
