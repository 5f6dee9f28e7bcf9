"""Fill the generated block of a page: tools/fill_tables.py RECORD PAGE.

From a record of `onecopy bench crossover` or `stories` (JSON), or what `onecopy bench structs --markdown` wrote (.md).
"""

import json
import sys
from pathlib import Path

from onecopy_bench.passes import winners
from onecopy_bench.passes.series import from_json
from onecopy_bench.stories import page as stories_page
from onecopy_bench.stories import record as stories
from onecopy_bench.stories.every import STORIES

STRUCTS = ("<!-- structs:begin -->", "<!-- structs:end -->")


def main() -> None:
    """Replace what stands between the two marks of the page."""
    record, page = (Path(argument) for argument in sys.argv[1:])
    if record.suffix == ".md":
        begin, end = STRUCTS
        block = f"{begin}\n\n{record.read_text().strip()}\n\n{end}"
        text = winners.filled(page.read_text(), block, begin, end)
    elif json.loads(record.read_text()).get("format") == stories.FORMAT:
        block = stories_page.block(stories.from_json(record.read_text(), STORIES), STORIES)
        text = winners.filled(page.read_text(), block, stories_page.BEGIN, stories_page.END)
    else:
        text = winners.filled(page.read_text(), winners.to_markdown(from_json(record.read_text())))
    page.write_text(text)


if __name__ == "__main__":
    main()
