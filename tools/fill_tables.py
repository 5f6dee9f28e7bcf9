"""Fill the generated block of a page: tools/fill_tables.py RECORD PAGE.

The record is one of `onecopy bench crossover`, `structs` or `stories`.
"""

import sys
from pathlib import Path

from onecopy_bench.engine import pages
from onecopy_bench.engine.record import read
from onecopy_bench.scenarios import structs
from onecopy_bench.scenarios.passes import winners
from onecopy_bench.stories import STORIES
from onecopy_bench.stories import page as stories_page
from onecopy_bench.stories.record import stories_of

STRUCTS = ("<!-- structs:begin -->", "<!-- structs:end -->")


def main() -> None:
    """Replace what stands between the two marks of the page."""
    path, page = (Path(argument) for argument in sys.argv[1:])
    records = read(path)
    marks = {"structs": STRUCTS, "crossover": (winners.BEGIN, winners.END)}.get(
        records[0].scenario, (stories_page.BEGIN, stories_page.END)
    )
    if records[0].scenario == "structs":
        scenario = structs.SCENARIO
        tables = (table.markdown() for table in scenario.tables(records[0]))
        parts = [scenario.heading(records[0]), *tables, *scenario.sentences(records[0])]
        block = "\n\n".join([STRUCTS[0], *parts, STRUCTS[1]])
    elif records[0].scenario == "crossover":
        block = winners.to_markdown(records[0])
    else:
        block = stories_page.block(stories_of(records), STORIES)
    page.write_text(pages.filled(page.read_text(), block, *marks))


if __name__ == "__main__":
    main()
