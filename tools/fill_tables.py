"""Fill the generated block of a page from a record of `onecopy bench crossover`: tools/fill_tables.py RECORD PAGE."""

import sys
from pathlib import Path

from onecopy.bench.passes import winners
from onecopy.bench.passes.series import from_json


def main() -> None:
    """Replace what stands between the two marks of the page."""
    record, page = (Path(argument) for argument in sys.argv[1:])
    page.write_text(winners.filled(page.read_text(), winners.to_markdown(from_json(record.read_text()))))


if __name__ == "__main__":
    main()
