"""Runs commands in their own terminal, and returns the terminal as an SVG.

The SVG needs no font from the network, and has its own dark background, which suits light and dark pages.
"""

import io
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

THEME = TerminalTheme(
    (30, 33, 39),
    (216, 220, 226),
    [(30, 33, 39), (240, 113, 120), (150, 200, 120), (230, 190, 110), (110, 170, 240), (200, 150, 230), (99, 200, 200)],
    [(99, 107, 118), (240, 99, 99), (170, 215, 140), (240, 205, 130), (99, 185, 250), (215, 170, 240), (99, 215, 215)],
)  # fmt: skip
FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px }}
.{unique_id}-title {{ font-size: 18px; font-family: system-ui, sans-serif }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def output_of(command: list[str], folder: Path, width: int) -> str:
    """Run a command with a terminal for stdout, and return its output. Raise RuntimeError if it fails.

    A status of 3 is a finding ("something is wrong"), not a failure.
    """
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": str(width), "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    with tempfile.NamedTemporaryFile() as errors:
        in_terminal = f"exec {shlex.join(command)} < /dev/null 2> {shlex.quote(errors.name)}"
        words = ["script", "--quiet", "--return", "--command", in_terminal, "/dev/null"]
        done = subprocess.run(
            words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        if done.returncode not in (0, 3):
            raise RuntimeError(f"{' '.join(command)}: status {done.returncode}: {errors.read().decode()}")
    return done.stdout.decode().replace("\r\n", "\n")


def screen_of(name: str, steps: list[list[str]], folder: Path, width: int = 96) -> bytes:
    """Run commands one after the other, and return the terminal after the last one as SVG."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for command in steps:
        console.print(Text.assemble(("$ ", "bold green"), (" ".join(command), "bold")), soft_wrap=True)
        console.print(Text.from_ansi(output_of(command, folder, width).rstrip()), soft_wrap=True)
    console.print()  # the last line of an export is cut
    svg = console.export_svg(title=folder.name, theme=THEME, code_format=FORMAT, unique_id=name, font_aspect_ratio=0.61)
    return "".join(f"{line.rstrip()}\n" for line in svg.splitlines()).encode()
