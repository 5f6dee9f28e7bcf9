"""Set the version of all distributions for a release: tools/set_version.py X.Y.Z [YYYY-MM-DD], by default today.

Changes `pyproject.toml` and those of `packages/*`, which require exactly this version, CITATION.cff and the
conda recipe. In CHANGELOG.md, the section "Unreleased" gets the version and the date. The CMake examples request the
minor version. Everything else reads `pyproject.toml`.
"""

import argparse
import datetime as dt
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
CMAKE = ("examples/c/CMakeLists.txt", "examples/cmake_consumer/CMakeLists.txt")
CMAKE += ("docs/howto/c.md", "docs/howto/cpp-structures.md")


def replaced(path: Path, *changes: tuple[str, str]) -> None:
    """Replace the matches of each regular expression in a file. Raise SystemExit if one has no match."""
    text = path.read_text()
    for pattern, new in changes:
        text, count = re.subn(pattern, new, text, flags=re.MULTILINE)
        if not count:
            raise SystemExit(f"{path}: no line matches {pattern!r}")
    path.write_text(text)


def main() -> None:
    """Set the version given on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("date", nargs="?", default=dt.datetime.now(dt.UTC).date().isoformat())
    options = parser.parse_args()
    own = (r'^version = "\d[^"]*"', f'version = "{options.version}"')
    pins = (r'(?<=")(onecopy[\w\[\],-]*)==[^"]+', rf"\1=={options.version}")
    replaced(ROOT / "pyproject.toml", own)
    for path in ROOT.glob("packages/*/pyproject.toml"):
        replaced(path, own, pins)
    minor = ".".join(options.version.split(".")[:2])
    for name in CMAKE:
        replaced(ROOT / name, (r"(?<=find_package\(onecopy )\d+\.\d+", minor))
    replaced(ROOT / "conda/recipe.yaml", (r'^  version: "[^"]*"', f'  version: "{options.version}"'))
    dated = (r"^date-released: .*", f'date-released: "{options.date}"')
    replaced(ROOT / "CITATION.cff", (r"^version: .*", f"version: {options.version}"), dated)
    replaced(ROOT / "CHANGELOG.md", (r"^## Unreleased$", f"## {options.version} - {options.date}"))


if __name__ == "__main__":
    main()
