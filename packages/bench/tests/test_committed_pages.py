"""Every page that is generated from committed records: its generator runs on them, and shows their rows and figures.

The wording and the layout of a page are free to change: a page is never compared with its committed text.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from packages.bench.tests.support import committed
from tests.support.places import ROOT

from onecopy_bench.cli import SCENARIOS
from onecopy_bench.record import read
from onecopy_bench.stories import page, reading
from onecopy_bench.stories.reading import Stories
from onecopy_bench.stories.story import STORIES

NUMBER = re.compile(r"\d+(?:\.\d+)?")


def name_of(path: Path) -> str:
    """Return what a record is of: its name without date, commit and suffix."""
    return path.stem.split("-", 4)[-1]


def numbers_in(text: str) -> set[float]:
    return set(map(float, NUMBER.findall(text)))


def lines_of(text: str) -> dict[str, list[str]]:
    """Return the rows of all Markdown tables of a page, by their first cell without emphasis."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            found.setdefault(cells[0].replace("*", "").replace("\\", ""), []).append(line)
    return found


# --- bench stories ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stories() -> Stories:
    (path,) = committed("stories")
    found = reading.read(path)
    assert set(found.measured) == {story.name for story in STORIES}
    return found


def figures_of(stories: Stories) -> Iterator[tuple[str, ...]]:
    """Yield the cells of the overview, which every page begins with, and of the table of every story."""
    for table in (page.overview(stories, STORIES), *(page.table_of(story, stories.of(story)) for story in STORIES)):
        for row in table.rows:
            yield tuple(cell.partition("\n")[0] for cell in row)


def test_the_table_of_the_readme_is_rendered(stories):
    readme = (ROOT / "README.md").read_text()
    assert page.block(stories, STORIES) in readme, "make pages"


def test_the_page_of_the_stories_is_rendered(stories):
    shown = page.to_markdown(stories, STORIES, "stories.svg").replace("\\", "")
    rows = lines_of(shown)
    for words, *figures in figures_of(stories):
        assert any(all(figure in line for figure in figures) for line in rows[words.replace("*", "")]), words
    assert all(story.title in shown for story in STORIES)
    assert "(stories.svg)" in shown


# --- the others -------------------------------------------------------------------------------------------------------

OTHERS = [path for path in committed("*") if path.with_name(f"{name_of(path)}.md").exists()]
OTHERS = [path for path in OTHERS if read(path)[0].scenario != "stories"]


@pytest.mark.parametrize("path", OTHERS, ids=name_of)
def test_a_page_of_tables_is_rendered(path):
    (record,) = read(path)
    shown = lines_of(SCENARIOS[record.scenario].page(record, "out.svg"))
    before = lines_of(path.with_name(f"{name_of(path)}.md").read_text())  # as it was shown when it was measured
    assert len(before) > 2
    for name, lines in before.items():
        for line in lines:
            figures = numbers_in(line.replace(name, "", 1))
            assert any(figures <= numbers_in(each.replace(name, "", 1)) for each in shown[name]), (name, line)
