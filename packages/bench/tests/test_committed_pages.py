"""Every page that is generated from committed records: its generator runs on them, and shows their rows and figures.

The wording and the layout of a page are free to change: a page is never compared with its committed text.
"""

import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.places import ROOT
from tools.fill_tables import block_of, marks_of

from onecopy_bench.cli import SCENARIOS
from onecopy_bench.engine.record import Record, read
from onecopy_bench.engine.scenario import filled
from onecopy_bench.engine.tables import number
from onecopy_bench.scenarios import open as opening, passes as winners
from onecopy_bench.scenarios.open import cases_of, names_of
from onecopy_bench.stories import NAMES, page, reading
from onecopy_bench.stories.reading import Stories
from onecopy_bench.stories.story import STORIES

RECORDS = ROOT / "packages/bench/results"
pytestmark = pytest.mark.skipif(not RECORDS.is_dir(), reason="the records are not in source packages")

NUMBER = re.compile(r"\d+(?:\.\d+)?")


def committed(pattern: str) -> list[Path]:
    return sorted(RECORDS.glob(f"*/*-{pattern}.jsonl"))


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
    found = reading.read(path, STORIES)
    assert set(found.measured) == set(NAMES)
    return found


def overview_of(stories: Stories) -> Iterator[tuple[str, ...]]:
    """Yield the cells of the lines of the overview, which every page of the stories begins with."""
    for told in reading.overview(stories, STORIES):
        assert told.ours
        yield tuple(filter(None, told[:4]))


def figures_of(stories: Stories) -> Iterator[tuple[str, ...]]:
    """Yield the name and the figures of every row of every story."""
    for story in STORIES:
        samples = stories.of(story)
        for line in reading.measured(story, samples):
            cells = [reading.cell(story, metric, line, samples) for metric in reading.shown(story, samples)]
            yield (line.words, *(text for cell in cells for text in (cell.here, cell.published) if text))


def test_the_table_of_the_readme_is_rendered(stories):
    shown = page.block(stories, STORIES)
    rows = lines_of(shown)
    for words, *figures in overview_of(stories):
        (line,) = rows[words]
        assert all(figure in line for figure in figures)
    readme = (ROOT / "README.md").read_text()
    assert shown in filled(readme, shown, page.BEGIN, page.END)


def test_the_page_of_the_stories_is_rendered(stories):
    shown = page.to_markdown(stories, STORIES, "stories.svg").replace("\\", "")
    rows = lines_of(shown)
    for words, *figures in (*overview_of(stories), *figures_of(stories)):
        assert any(all(figure in line for figure in figures) for line in rows[words]), words
    assert all(story.title in shown for story in STORIES)
    assert "(stories.svg)" in shown


# --- bench open -------------------------------------------------------------------------------------------------------

OPEN = {
    "open-8m.md": ["07bf1de-open-1-device", "07bf1de-open-2-8-device", "07bf1de-open-4-device"],
    "open-128k.md": ["07bf1de-open-1-128k", "07bf1de-open-4-128k"],
    "open-shuffled.md": ["07bf1de-shuffled-1-device", "07bf1de-shuffled-1-128k"],
    "open-4g.md": ["e0ab2a1-open-4g"],
}


def read_open(names: list[str]) -> list[Record]:
    paths = [path for name in names for path in committed(name)]
    assert len(paths) == len(names)
    return [record for path in paths for record in read(path)]


def milliseconds_of(record: Record, row: str, case: tuple[str, ...]) -> float | None:
    """Return the median over the good samples of a row of the time of their slowest process, from the raw samples."""
    slowest = [max(each["resident_ns"] for each in sample.processes) / 1e6 for sample in record.of(row, case)]
    return statistics.median(slowest) if slowest else None


@pytest.mark.parametrize("name", OPEN)
def test_a_page_of_how_files_open_is_rendered(name):
    for record in read_open(OPEN[name]):
        page = SCENARIOS["open"].page(record)
        for case in cases_of(record):
            title = f"**{opening.words_of(case).capitalize()}: the slowest process**"
            (section,) = [part for part in re.split(r"^(?=\*\*)", page, flags=re.MULTILINE) if part.startswith(title)]
            rows = lines_of(section)
            for row in names_of(record):
                (line,) = [lines[0] for words, lines in rows.items() if words.split("<br>")[0] == row]
                wanted = milliseconds_of(record, row, case)
                if wanted is not None and row != "empty":
                    assert float(NUMBER.match(line.split("|")[2].strip())[0]) == pytest.approx(wanted, rel=0.01), row


# --- bench crossover --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crossover() -> Record:
    (path,) = committed("crossover")
    (found,) = read(path)
    return found


def test_the_tables_of_when_to_copy_are_rendered(crossover):
    shown = block_of(crossover)
    verdicts = winners.verdicts_of(crossover)
    assert verdicts
    rows = lines_of(shown)
    for verdict in verdicts:
        assert f"**{verdict.place}, " in shown
        lines = rows[f"{100 * verdict.share:g} %"]
        if verdict.winners:
            milliseconds = f"{number(verdict.times[verdict.winners[0]].median)} ms"
            assert any(verdict.winners[0] in line and milliseconds in line for line in lines), verdict
    page_of_it = (ROOT / "packages/bench/results/vm-2core-epyc-linux-6.18/when-to-copy.md").read_text()
    assert shown in filled(page_of_it, shown, *marks_of("crossover"))


# --- the others -------------------------------------------------------------------------------------------------------

OTHERS = [path for path in committed("*") if path.with_name(f"{name_of(path)}.md").exists()]
OTHERS = [
    path for path in OTHERS if read(path)[0].scenario not in {"stories", "open", "crossover", "monitor", "unchanged"}
]


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
