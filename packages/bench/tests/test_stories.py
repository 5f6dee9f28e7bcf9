"""The stories: read back from records, shown as pages and pictures; and measured, small, one by one."""

import html
import re
from dataclasses import replace

import pytest
from packages.bench.tests.support import committed

from onecopy_bench.record import Log, Sample, lines, parse
from onecopy_bench.scenario import Plan
from onecopy_bench.stories import page, reading
from onecopy_bench.stories.story import STORIES, Scale
from onecopy_bench.tables import text

MODELS = STORIES[0]
QUICK = Scale(quick=True, idle_wait=0.0)
HOSTILE = "<script>alert(1)</script> | [x](y) \x1b[31m"


@pytest.fixture(scope="module")
def stories() -> reading.Stories:
    (path,) = committed("stories")
    return reading.read(path)


def without(stories: reading.Stories, name: str, reason: str) -> reading.Stories:
    """Return stories one of which could not be measured."""
    outcome = Sample(name, (), 0, "skipped", reason)
    return replace(stories, heading=replace(stories.heading, samples=(*stories.heading.samples, outcome)))


def test_a_story_is_told_by_rows_and_metrics_that_it_has():
    for story in STORIES:
        assert story.sources[0].url.startswith("https://")
        assert story.carries
        assert story.changes
        for summary in story.summaries:
            story.metric(summary.metric)
            before, after, ours = map(story.line, summary.rows)
            assert (before.ours, after.ours, ours.ours) == (False, False, True)
        keys = {metric.name for metric in story.metrics}
        assert all(line.published.keys() <= keys for line in story.lines)
        assert any(line.published for line in story.lines)


def test_a_page_has_every_published_figure_every_row_and_every_source(stories):
    shown = page.to_markdown(stories, STORIES).replace("\\", "")
    for story in STORIES:
        for line in (line for line in story.lines if line.published):
            assert line.words in shown
            assert all(figure in shown for figure in line.published.values())
        for source in story.sources:
            assert source.url in shown
            assert source.words.strip() in shown
        assert all(words in shown for words in (*story.carries, *story.changes, story.title, story.command))
        assert f"onecopy bench stories --story {story.name} " in shown


def test_headlines_and_cells_are_computed_from_the_samples(stories):
    samples = stories.of(MODELS)
    first = page.figures_of(MODELS, MODELS.summaries[0], samples)
    held = sorted(sample.numbers["uss"] / 1e6 for sample in samples.of("ort", ("convolutions", "4 processes")))
    assert first.published == "462.6 MB → 98.2 MB"
    assert first.here.startswith(f"{held[len(held) // 2]:.0f} MB → ")
    assert f"hold {held[len(held) // 2]:.0f} MB of private memory" in page.headlines(MODELS, samples)[0]


def test_what_could_not_be_measured_says_why_and_its_figures_stay(stories):
    lost = without(stories, "images", "bench images needs tifffile: pip install 'onecopy[images]'")
    shown = page.to_markdown(lost, STORIES)
    assert "Not measured" in shown
    assert "needs tifffile" in shown
    assert "about 500 MB" in shown


def test_text_of_a_record_is_neither_markup_nor_invisible(stories):
    lost = without(stories, "share", HOSTILE)
    lost = replace(lost, heading=replace(lost.heading, machine={**lost.heading.machine, "cpu": HOSTILE}))
    written = page.to_markdown(lost, STORIES) + page.block(lost, STORIES)
    assert "\x1b" not in written
    assert text(HOSTILE) in written
    assert re.search(r"(?<!\\)<script", written) is None


def test_a_picture_has_bars_of_every_story(tmp_path, stories):
    page.save(stories, STORIES, tmp_path / "s.svg")
    drawn = html.unescape((tmp_path / "s.svg").read_text())
    assert all(story.title in drawn for story in STORIES)
    nothing = replace(stories, heading=replace(stories.heading, samples=()))
    with pytest.raises(ValueError, match="no published measurement was repeated"):
        page.save(nothing, STORIES, tmp_path / "none.svg")


def test_a_record_of_something_else_is_refused(tmp_path, stories):
    (tmp_path / "r.jsonl").write_text("".join(lines(stories.of(MODELS))))
    with pytest.raises(ValueError, match=r"r\.jsonl: expected a record of stories, found a record of models"):
        reading.read(tmp_path / "r.jsonl")


def test_what_is_done_is_not_measured_again_and_what_cannot_be_is_told(tmp_path, stories):
    calls, path = [], tmp_path / "r.jsonl"

    def story(name, error=None):
        def plan(setup, options):
            calls.append(name)
            if error:
                raise error
            return Plan((), ())

        return replace(MODELS, name=name, scenario=replace(MODELS.scenario, name=name, plan=plan))

    three = [story("a"), story("b", OSError(28, "No space left on device", "weights")), story("c", RuntimeError("odd"))]
    told = []
    found = reading.run(three, tmp_path, QUICK, Log(path), ended=lambda _, outcome: told.append(outcome.state))
    assert told == ["ok", "skipped", "skipped"]
    assert "No space left" in found.missing(three[1])
    again = reading.run(three[:2], tmp_path, QUICK, Log(path, resume=True))
    assert calls == ["a", "b", "c", "b"]
    assert again.measured == ["a"]
    assert again.missing(three[2]) == "odd"
    assert [each.scenario for each in parse(path.read_text())] == ["stories", "a"]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["r.jsonl"]


@pytest.mark.processes
@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [story.name for story in STORIES])
def test_a_story_is_measured_small(name, tmp_path, monkeypatch, request):
    (story,) = [story for story in STORIES if story.name == name]
    if "ways" in story.options:
        ways = {"ways": story.summaries[0].rows}  # other rows have tests of their own
        story = replace(story, options=story.options | ways)
    if name == "structs":
        binary = request.getfixturevalue("bench_structs")
        story = replace(story, options=story.options | {"program": str(binary)})
    seen = []
    found = reading.run([story], tmp_path, QUICK, Log(tmp_path / "r.jsonl"), watch=seen.append)
    if not found.measured:
        pytest.skip(found.missing(story))
    samples = found.of(story)
    assert {(sample.state, sample.reason) for sample in samples.samples} == {("ok", "")}
    assert list(page.headlines(story, samples)) or name == "nodes"  # a quick run has two nodes, and no Ray
    assert seen[-1].done == seen[-1].total
    assert reading.read(tmp_path / "r.jsonl") == found
    assert [path.name for path in tmp_path.iterdir()] == ["r.jsonl"]  # the data are gone
