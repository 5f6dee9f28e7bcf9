"""Fill the generated block of a page: tools/fill_tables.py RECORD PAGE.

The record is one of `onecopy bench crossover`, `structs` or `stories`.
"""

import sys
from pathlib import Path

from onecopy_bench.cli import SCENARIOS
from onecopy_bench.record import Record, read
from onecopy_bench.scenario import filled
from onecopy_bench.stories import page as stories_page
from onecopy_bench.stories.reading import stories_of
from onecopy_bench.stories.story import STORIES


def marks_of(scenario: str) -> tuple[str, str]:
    """Return what the block of a scenario stands between."""
    return f"<!-- {scenario}:begin -->", f"<!-- {scenario}:end -->"


def block_of(record: Record) -> str:
    """Return heading, tables and sentences of a record, marks included."""
    scenario, (begin, end) = SCENARIOS[record.scenario], marks_of(record.scenario)
    tables = (table.markdown() for table in scenario.tables(record))
    sentences = "\n".join(f"* {sentence}" for sentence in scenario.sentences(record))
    return "\n\n".join([begin, scenario.heading(record), *tables, sentences, end])


def main() -> None:
    """Replace what stands between the two marks of the page."""
    path, page = (Path(argument) for argument in sys.argv[1:])
    records = read(path)
    if records[0].scenario == "stories":
        block, marks = stories_page.block(stories_of(records), STORIES), (stories_page.BEGIN, stories_page.END)
    else:
        block, marks = block_of(records[0]), marks_of(records[0].scenario)
    page.write_text(filled(page.read_text(), block, *marks))


if __name__ == "__main__":
    main()
