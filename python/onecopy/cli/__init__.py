"""The command line `onecopy`: one file per verb, over the library.

    onecopy ls FILE            what a file holds, and how much of it is in memory
    onecopy convert FILE TO    write its arrays, or those of several files, as a safetensors file laid out for mapping
    onecopy import FILE TO     write the rows of a JSON, CSV or Parquet file as records
    onecopy images open FILE   decode an image once for this machine; view and stitch too
    onecopy warm FILE          bring it into memory, with a progress bar and a report
    onecopy evict FILE...      drop it from the page cache again
    onecopy verify FILE...     compare it with the checksums that were stored in it
    onecopy store ls           list what was built once for this machine; prune and path too
    onecopy top                who holds memory, everything counted once, live
    onecopy why PID            what the memory of a process is, in sentences, and what is wrong
    onecopy container          what a container has left, and why Kubernetes shows another number
    onecopy serve              the same for Prometheus, and as a live page
    onecopy record -o RUN -- COMMAND   run a command and record the memory that it and its children need
    onecopy plot RUN -o PICTURE    draw a recording: SVG, HTML with numbers under the pointer, PNG
    onecopy diff BEFORE AFTER      two recordings as a table in Markdown, and as a picture
    onecopy bench ...          measure in fresh processes, beside peers: the package onecopy-bench

click and rich are imported by this package alone, and only when a command runs. Errors are one line on stderr
that starts with "onecopy: "; the exit status is 1, 2 for a wrong command line, 130 after Ctrl-C. Set
ONECOPY_TRACEBACK=1 to see where an error comes from. A library never needs this package: import `onecopy`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; `arguments` are those of the process if None."""
    from onecopy.cli import command_line

    return command_line.run(arguments)
