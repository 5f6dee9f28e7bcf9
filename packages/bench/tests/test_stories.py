"""The stories: read back from records, shown as pages and pictures; and measured, small, one by one."""

import html
import json
import re
from dataclasses import replace

import pytest
from packages.bench.tests.support import made_up, text_of_stories
from tests.support.places import ROOT

from onecopy_bench.engine.record import Log, parse
from onecopy_bench.engine.tables import text
from onecopy_bench.stories import NAMES, page, reading
from onecopy_bench.stories.story import STORIES, Scale

MODELS = STORIES[0]
QUICK = Scale(quick=True, idle_wait=0.0)
HOSTILE = "<script>alert(1)</script> | [x](y) \x1b[31m"


def read(lines: str, tmp_path) -> reading.Stories:
    (tmp_path / "made.jsonl").write_text(lines)
    return reading.read(tmp_path / "made.jsonl", STORIES)


def test_a_story_is_told_by_rows_and_metrics_that_it_has():
    for story in STORIES:
        assert story.sources[0].url.startswith("https://")
        assert story.carries
        assert story.changes
        for telling in story.telling:
            story.metric(telling.metric)
            assert story.line(telling.ours).ours
            assert not story.line(telling.before).ours
        keys = {metric.name for metric in story.metrics}
        assert all(line.published.keys() <= keys for line in story.lines)
        assert any(line.published for line in story.lines)


@pytest.mark.parametrize("made", [page.to_markdown, page.to_html])
def test_a_page_has_every_published_figure_every_row_and_every_source(made):
    shown = html.unescape(made(made_up(), STORIES)).replace("\\", "")
    for story in STORIES:
        for line in story.lines:
            assert line.words in shown
            assert all(figure in shown for figure in line.published.values())
        for source in story.sources:
            assert source.url in shown
            assert source.words in shown
        assert all(words in shown for words in (*story.carries, *story.changes, story.title, story.command))
        assert f"onecopy bench stories --story {story.name} " in shown


def test_headlines_and_cells_are_computed_from_the_samples():
    stories = made_up()
    first = reading.told(MODELS, MODELS.telling[0], stories.of(MODELS))
    assert first.published == "462.6 MB → 98.2 MB"
    assert first.here == "2000 MB → 4000 MB"
    assert first.ours == "6000 MB"
    said = list(reading.headlines(MODELS, stories.of(MODELS)))
    assert "hold 2000 MB of private memory" in said[0]
    cell = reading.cell(MODELS, MODELS.metric("load"), MODELS.line("ort"), stories.of(MODELS))
    assert cell == ("193.13 ms", "2200 ms", "2000-2400")


def test_what_could_not_be_measured_says_why_and_its_figures_stay(tmp_path):
    stories = made_up(without="images", reason="bench images needs tifffile: pip install 'onecopy[images]'")
    for shown in (page.to_markdown(stories, STORIES), html.unescape(page.to_html(stories, STORIES))):
        assert "Not measured" in shown
        assert "needs tifffile" in shown
        assert "about 500 MB" in shown
    assert read(text_of_stories(stories), tmp_path) == stories


def test_text_of_a_record_is_neither_markup_nor_invisible():
    stories = made_up(without="share", reason=HOSTILE)
    machine = {**stories.heading.machine, "cpu": HOSTILE, "packages": {HOSTILE: HOSTILE}}
    stories = replace(stories, heading=replace(stories.heading, machine=machine))
    shown = page.to_html(stories, STORIES)
    assert "<script" not in shown
    assert "\x1b" not in shown
    written = page.to_markdown(stories, STORIES) + page.block(stories, STORIES)
    assert "\x1b" not in written
    assert text(HOSTILE) in written
    assert re.search(r"(?<!\\)<script", written) is None


def test_a_picture_has_bars_of_every_story_and_memory_over_time(tmp_path):
    page.save(tmp_path / "s.svg", made_up(), STORIES)
    drawn = html.unescape((tmp_path / "s.svg").read_text())
    for story in STORIES:
        assert story.title in drawn
    assert "memory over time" in drawn
    assert "logarithmic" not in drawn
    nothing = replace(made_up(), heading=replace(made_up().heading, samples=()))
    with pytest.raises(ValueError, match="no story was measured"):
        page.save(tmp_path / "none.svg", nothing, STORIES)


def changed(change) -> str:
    """Return the lines of the record with one changed: by the scenario, and which of its samples; the header is 0."""
    found, scenario, at = [], "", 0
    for line in text_of_stories(made_up()).splitlines():
        plain = json.loads(line)
        scenario, at = (plain["scenario"], 0) if "format" in plain else (scenario, at + 1)
        change(scenario, at, plain)
        found.append(json.dumps(plain) + "\n")
    return "".join(found)


@pytest.mark.parametrize(
    ("scenario", "at", "change", "message"),
    [
        ("stories", 0, lambda p: p.update(format="other"), "the format is 'other'"),
        ("stories", 0, lambda p: p.update(scenario="odd"), "it holds no stories, but"),
        ("stories", 0, lambda p: p.pop("machine"), "machine"),
        ("models", 1, lambda p: p["numbers"].update(uss="much"), "'much' for a number"),
        ("start", 0, lambda p: p["data"].clear(), "the story 'start': it lacks 'bytes'"),
        ("structs", 1, lambda p: p["processes"][0].update(open_ns="x"), "the story 'structs'"),
        ("structs", 1, lambda p: p.pop("processes"), "the story 'structs'"),
    ],
)
def test_a_changed_record_is_refused_and_says_what_is_wrong(tmp_path, scenario, at, change, message):
    text = changed(lambda name, number, plain: change(plain) if (name, number) == (scenario, at) else None)
    with pytest.raises(ValueError, match=message):
        read(text, tmp_path)


def test_what_is_done_is_not_measured_again_and_what_cannot_be_is_told(tmp_path):
    calls, path = [], tmp_path / "r.jsonl"

    def story(name, error=None):
        def run(place, options, watch, log):
            calls.append(name)
            if error:
                raise error
            return log.begin(replace(made_up().of(MODELS), scenario=name, samples=(), seconds=None))

        return replace(MODELS, name=name, scenario=replace(MODELS.scenario, name=name, run=run))

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
@pytest.mark.parametrize("name", NAMES)
def test_a_story_is_measured_small(name, tmp_path, monkeypatch, request):
    (story,) = [story for story in STORIES if story.name == name]
    if "ways" in story.options:
        rows = [getattr(story.telling[0], each) for each in ("before", "after", "ours")]
        story = replace(story, options=story.options | {"ways": rows})  # other rows have tests of their own
    if name == "structs":
        binary = request.getfixturevalue("bench_structs")
        story = replace(story, options=story.options | {"program": str(binary)})
    seen = []
    found = reading.run([story], tmp_path, QUICK, Log(tmp_path / "r.jsonl"), watch=seen.append)
    if not found.measured:
        pytest.skip(found.missing(story))
    samples = found.of(story)
    assert {(sample.state, sample.reason) for sample in samples.samples} == {("ok", "")}
    assert list(reading.headlines(story, samples))
    assert seen[-1].done == seen[-1].total
    assert reading.read(tmp_path / "r.jsonl", STORIES) == found
    assert [path.name for path in tmp_path.iterdir()] == ["r.jsonl"]  # the data are gone


def test_the_tool_fills_a_page_from_a_record(tmp_path, python):
    path, target = tmp_path / "r.jsonl", tmp_path / "page.md"
    path.write_text(text_of_stories(made_up()))
    target.write_text(f"# Title\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    run = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    python(run, ROOT / "tools/fill_tables.py", path, target)
    assert target.read_text() == f"# Title\n{page.block(made_up(), STORIES)}\nafter\n"
