"""`onecopy images`: a group of subcommands, which `onecopy` finds through the entry point `images`."""

from __future__ import annotations

import logging

import click

from onecopy.cli.options import Group

VERBS = {
    "open": "Decode IMAGE into this machine's store unless it is already there, and print the path of the pixels.",
    "stitch": "Stitch the tiles in FOLDER, and write OUT as .oc (to be mapped), .ome.tif, .tif or .zarr.",
    "view": "Write a small picture of IMAGE, or of an output of `images stitch`, as a PNG file.",
}
"""One-line description of each subcommand, in the order of the help. The modules have the same names."""


@click.group(
    "images", cls=Group, modules={name: (f"onecopy_images.cli.{name}", words) for name, words in VERBS.items()}
)
def command() -> None:
    """Decode images once per machine, make small pictures of them, and stitch tiles."""
    for library in ("tifffile", "pyvips"):  # errors contain the messages that these libraries log
        logging.getLogger(library).addHandler(logging.NullHandler())
