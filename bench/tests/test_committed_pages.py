"""Every page that is generated from committed records: its generator runs on them, and shows their rows and figures.

The wording and the layout of a page are free to change: a page is never compared with its committed text.
"""

import html
import importlib.util
import json
import re
import statistics
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.places import ROOT

from onecopy_bench import record as open_record
from onecopy_bench.passes import picture as passes_picture
from onecopy_bench.passes import series, winners
from onecopy_bench.passes.tables import number
from onecopy_bench.record import Record
from onecopy_bench.records import picture as data_picture
from onecopy_bench.records import record as data_record
from onecopy_bench.records import tables as data_tables
from onecopy_bench.report import markdown
from onecopy_bench.report import picture as open_picture
from onecopy_bench.stories import html_page, page, pictures, reading
from onecopy_bench.stories import record as story_record
from onecopy_bench.stories.every import NAMES, STORIES
from onecopy_bench.stories.record import Stories

RECORDS = ROOT / "bench/results"
pytestmark = pytest.mark.skipif(not RECORDS.is_dir(), reason="the records are not in source packages")
needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None,
    reason="matplotlib is not installed: pip install 'onecopy-bench[plots]'",
)

NUMBER = re.compile(r"\d+(?:\.\d+)?")


def committed(pattern: str) -> list[Path]:
    return sorted(RECORDS.glob(f"*/*-{pattern}.json"))


def name_of(path: Path) -> str:
    """Return what a record is of: its name without date, commit and suffix."""
    return path.stem.split("-", 4)[-1]


def numbers_in(text: str) -> set[float]:
    return set(map(float, NUMBER.findall(text)))


def texts_in(picture: Path) -> set[str]:
    """Return the texts of a picture that matplotlib drew: as text, or as outlines with the text in a comment."""
    drawn = picture.read_text()
    assert ET.fromstring(drawn).tag.endswith("svg")
    return {
        html.unescape(text).strip() for pair in re.findall(r"<!--(.*?)-->|>([^<>]+)</text>", drawn) for text in pair
    }


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
    found = story_record.from_json(path.read_text(), STORIES)
    assert {kept.name for kept in found.kept} == set(NAMES)
    return found


def overview_of(stories: Stories) -> Iterator[tuple[str, ...]]:
    """Yield the cells of the lines of the overview, which every page of the stories begins with."""
    for told in reading.overview(stories, STORIES):
        assert told.ours
        yield tuple(filter(None, told))


def figures_of(stories: Stories) -> Iterator[tuple[str, ...]]:
    """Yield the name and the figures of every row of every story."""
    for story in STORIES:
        samples = stories.of(story)
        for line in reading.measured(story, samples):
            cells = [reading.cell(metric, line, samples) for metric in reading.shown(story, samples)]
            yield (line.words, *(text for cell in cells for text in (cell.here, cell.published) if text))


def test_the_table_of_the_readme_is_rendered(stories):
    shown = page.block(stories, STORIES)
    rows = lines_of(shown)
    for words, *figures in overview_of(stories):
        (line,) = rows[words]
        assert all(figure in line for figure in figures)
    readme = (ROOT / "README.md").read_text()
    assert shown in winners.filled(readme, shown, page.BEGIN, page.END)


def test_the_page_of_the_stories_is_rendered(stories):
    shown = page.to_markdown(stories, STORIES, "stories.svg").replace("\\", "")
    rows = lines_of(shown)
    for words, *figures in (*overview_of(stories), *figures_of(stories)):
        assert any(all(figure in line for figure in figures) for line in rows[words]), words
    assert all(story.title in shown for story in STORIES)
    assert "(stories.svg)" in shown


def test_the_web_page_of_the_stories_is_rendered(stories):
    shown = html.unescape(html_page.to_html(stories, STORIES))
    for cells in (*overview_of(stories), *figures_of(stories)):
        assert all(cell in shown for cell in cells), cells
    assert all(story.title in shown for story in STORIES)


def test_the_picture_of_the_stories_is_rendered(stories):
    shown = " ".join(ET.fromstring(pictures.to_svg(stories, STORIES)).itertext())
    for story in STORIES:
        assert story.title in shown
        samples, told = stories.of(story), story.telling[0]
        assert reading.amount(story.metric(told.metric).of(samples, told.ours), "").split()[0] in shown


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
    return [open_record.from_json(path.read_text()) for path in paths]


def milliseconds_of(case: Record, row: str) -> float | None:
    """Return the median over the good samples of a row of the time of their slowest process, from the raw samples."""
    good = [s for s in case.samples if s.configuration == row and s.state == "ok"]
    slowest = [max(reading.resident_ns for reading in sample.readings) / 1e6 for sample in good]
    return statistics.median(slowest) if slowest else None


@pytest.mark.parametrize("name", OPEN)
def test_a_page_of_how_files_open_is_rendered(name):
    records = read_open(OPEN[name])
    shown = markdown.page(records)
    column = markdown.HEADINGS.index("all resident, ms (min-max)")
    found = iter(re.split(r"^### ", shown, flags=re.MULTILINE)[1:])
    for record in records:
        for case in record.cases():
            section = next(one for one in found if one.startswith(str(case.case).capitalize()))
            rows = lines_of(section)
            for entry in case.entries:
                if entry.role == "row":
                    (line,) = rows[entry.name]
                    wanted = milliseconds_of(case, entry.name)
                    cell = line.split("|")[1:-1][column].strip().replace(",", "")
                    if wanted is not None and entry.name != "empty":
                        assert float(NUMBER.match(cell)[0]) == pytest.approx(wanted, rel=0.01), (entry.name, cell)


@needs_matplotlib
def test_the_picture_of_how_files_open_is_rendered(tmp_path):
    records = read_open(OPEN["open-8m.md"])
    open_picture.draw(records, tmp_path / "out.svg")
    shown = texts_in(tmp_path / "out.svg")
    names = {s.configuration for record in records for case in record.cases() for s in case.samples if s.readings}
    drawn = {entry.name for record in records for entry in record.entries if entry.role == "row"} & names - {"empty"}
    assert drawn
    assert drawn <= shown


# --- bench crossover --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crossover() -> series.Series:
    (path,) = committed("crossover")
    return series.from_json(path.read_text())


def test_the_tables_of_when_to_copy_are_rendered(crossover):
    shown = winners.to_markdown(crossover)
    for place in crossover.places:
        assert f"**{place.name}, " in shown
    verdicts = winners.verdicts_of(crossover)
    assert verdicts
    rows = lines_of(shown)
    for verdict in verdicts:
        lines = rows[f"{100 * verdict.share:g} %"]
        if verdict.winners:
            milliseconds = f"{number(verdict.times[verdict.winners[0]].median)} ms"
            assert any(verdict.winners[0] in line and milliseconds in line for line in lines), verdict
    page_of_it = (ROOT / "docs/explanation/when-to-copy.md").read_text()
    assert shown in winners.filled(page_of_it, shown)


@needs_matplotlib
def test_the_picture_of_when_to_copy_is_rendered(crossover, tmp_path):
    passes_picture.draw(crossover, tmp_path / "out.svg")
    shown = texts_in(tmp_path / "out.svg")
    for verdict in winners.verdicts_of(crossover):
        assert any(text.startswith(f"{verdict.place}: ") for text in shown)
        if verdict.winners:
            milliseconds = f"{number(verdict.times[verdict.winners[0]].median)} ms"
            assert any(text.startswith(milliseconds) for text in shown), milliseconds


# --- bench share, records, images, models, monitor, mosaic, start -----------------------------------------------------

DATA = [path for path in committed("*") if json.loads(path.read_text())["format"] == data_record.FORMAT]


@pytest.mark.parametrize("path", DATA, ids=name_of)
def test_a_page_of_tables_is_rendered(path):
    text = path.read_text()
    shown = data_tables.to_markdown(data_record.from_json(text), "out.svg")
    assert "(out.svg)" in shown
    rows = lines_of(shown)
    for table in json.loads(text)["tables"]:  # as they were shown when it was measured
        assert table["title"] in shown
        for name, *cells in table["rows"]:
            figures = numbers_in(" ".join(cells))
            assert any(figures <= numbers_in(line.replace(name, "", 1)) for line in rows[name]), (table["title"], name)


DRAWN = [path for path in DATA if path.with_name(f"{name_of(path)}.svg").exists()]


@needs_matplotlib
@pytest.mark.parametrize("path", DRAWN, ids=name_of)
def test_a_picture_of_tables_is_rendered(path, tmp_path):
    run = data_record.from_json(path.read_text())
    data_picture.draw(run, tmp_path / "out.svg")
    rows = {text.partition(": ")[0] for text in texts_in(tmp_path / "out.svg")}  # some titles say "row: case"
    measured = {sample.row for sample in run.samples if sample.state == "ok"}
    ours = {entry.name for entry in run.entries if entry.ours} & measured
    assert ours
    assert ours & rows if run.scenario == "images" else ours <= rows  # which has two rows only
