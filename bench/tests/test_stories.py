"""The stories: read back from records, shown as pages and pictures; and measured, small, one by one."""

import html
import json
import re
from dataclasses import replace

import pytest
from bench.tests.made_up_stories import made_up
from tests.support.places import ROOT

from onecopy_bench.record import Absent
from onecopy_bench.report.markdown import text
from onecopy_bench.stories import html_page, images, models, page, pictures, reading, record, running
from onecopy_bench.stories.every import NAMES, STORIES
from onecopy_bench.stories.record import Kept
from onecopy_bench.stories.story import Scale

QUICK = Scale(quick=True, idle_wait=0.0)
HOSTILE = "<script>alert(1)</script> | [x](y) \x1b[31m"


def plain_of(stories: record.Stories) -> dict:
    return json.loads(record.to_json(stories))


def read(plain: dict | str) -> record.Stories:
    return record.from_json(plain if isinstance(plain, str) else json.dumps(plain), STORIES)


def test_a_record_is_read_back_as_it_was_written():
    assert read(record.to_json(made_up())) == made_up()


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


@pytest.mark.parametrize("made", [page.to_markdown, html_page.to_html])
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
    first = reading.told(models.STORY, models.STORY.telling[0], stories.of(models.STORY))
    assert first.published == "462.6 MB → 98.2 MB"
    assert first.here == "2000 MB → 4000 MB"
    assert first.ours == "6000 MB"
    said = list(reading.headlines(models.STORY, stories.of(models.STORY)))
    assert "hold 2000 MB of private memory" in said[0]
    cell = reading.cell(models.STORY.metric("load"), models.STORY.line(models.DEFAULT), stories.of(models.STORY))
    assert cell == ("193.13 ms", "2200 ms", "2000-2400")


def test_what_could_not_be_measured_says_why_and_its_figures_stay():
    stories = made_up(without="images", reason="bench images needs tifffile: pip install 'onecopy[images]'")
    for shown in (page.to_markdown(stories, STORIES), html.unescape(html_page.to_html(stories, STORIES))):
        assert "Not measured" in shown
        assert "needs tifffile" in shown
        assert "about 500 MB" in shown
    assert read(record.to_json(stories)) == stories


def test_what_went_wrong_is_said():
    stories = made_up()
    run = stories.of(models.STORY)
    lost = replace(run.samples[0], state="crashed", reason="killed by a test", idle_share=0.5)
    broken = replace(run, samples=(lost, *run.samples[1:]), absent=(Absent("pyvips", "not installed: pyvips"),))
    said = list(reading.limits(broken))
    assert said[0] == "pyvips: not installed: pyvips."
    assert said[1] == f"{lost.row}: crashed, 1 of its samples: killed by a test."
    assert said[2].startswith("1 of ")


def test_text_of_a_record_is_neither_markup_nor_invisible():
    stories = made_up(without="share", reason=HOSTILE)
    stories = replace(stories, machine={**stories.machine, "cpu": HOSTILE, "packages": {HOSTILE: HOSTILE}})
    shown = html_page.to_html(stories, STORIES)
    assert "<script" not in shown
    assert "\x1b" not in shown
    written = page.to_markdown(stories, STORIES) + page.block(stories, STORIES)
    assert "\x1b" not in written
    assert text(HOSTILE) in written
    assert re.search(r"(?<!\\)<script", written) is None


def test_a_page_loads_nothing_and_knows_light_and_dark():
    shown = html_page.to_html(made_up(), STORIES)
    assert "default-src 'none'" in shown
    assert not re.search(r"<(script|img|link|iframe)|url\(|@import| src=", shown)
    assert "prefers-color-scheme: dark" in shown
    assert shown.count("<svg") > 10


def test_a_picture_has_bars_of_every_story_and_memory_over_time():
    drawn = pictures.to_svg(made_up(), STORIES)
    for story in STORIES:
        assert html.escape(story.title, quote=False) in drawn
    assert "memory over time" in drawn
    assert "logarithmic" not in drawn
    assert "nan" not in drawn.lower().replace("dominant", "")
    with pytest.raises(ValueError, match="no story was measured"):
        pictures.to_svg(replace(made_up(), kept=()), STORIES)


def test_bars_that_are_far_apart_are_logarithmic():
    metric, run = models.STORY.metric("load"), made_up().of(models.STORY)
    first, *others = (sample for sample in run.samples if sample.round == 0)

    def drawn(nanoseconds):
        sample = replace(first, numbers={**first.numbers, "create_ns": nanoseconds})
        return pictures.bars(models.STORY, metric, replace(run, samples=(sample, *others)))

    assert "logarithmic" not in drawn(1e9).title
    assert "logarithmic" in drawn(1e3).title
    assert "0 ms" in "".join(drawn(0.0).parts)
    assert pictures.bars(models.STORY, metric, replace(run, samples=(first,))) is None


def test_a_cut_record_is_refused():
    whole = record.to_json(made_up())
    for length in range(0, len(whole) - 2, len(whole) // 97):
        with pytest.raises(ValueError, match="no JSON, or only a part of it"):
            read(whole[:length])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.update(format="other"), "not a record of the format"),
        (lambda p: p.pop("machine"), "lacks 'machine'"),
        (lambda p: p.update(stories=[{}]), "lacks 'name'"),
        (lambda p: p["stories"][0].update(name="odd"), "no story 'odd'"),
        (lambda p: p["stories"][0].update(record=[]), "the story 'models'"),
        (lambda p: p["stories"][0].update(seconds="long"), "cannot be read"),
        (lambda p: p["stories"][0]["record"]["samples"][0]["numbers"].update(uss="much"), "the story 'models'.*'much'"),
        (lambda p: p["stories"][0]["record"]["samples"][0]["numbers"].update(uss=float("nan")), "'nan' for a number"),
        (lambda p: p["stories"][0]["record"]["samples"][0]["numbers"].update(uss=1e300), "for a number"),
        (lambda p: p["stories"][1]["record"]["data"].clear(), "the story 'start': it lacks 'bytes'"),
        (lambda p: p["stories"][2]["record"]["samples"][0].update(points=[[1.0]]), "the story 'images'"),
        (lambda p: p["stories"][4]["record"]["samples"][0]["readings"].clear(), "the story 'structs'"),
        (lambda p: p["stories"][4]["record"]["samples"][0]["readings"][0].update(open_ns="x"), "the story 'structs'"),
        (lambda p: p["stories"].append(p["stories"][0]), "twice"),
    ],
)
def test_a_changed_record_is_refused_and_says_what_is_wrong(change, message):
    plain = plain_of(made_up())
    change(plain)
    with pytest.raises(ValueError, match=message):
        read(plain)


@pytest.mark.parametrize("odd", ["[]", "7", '"x"', "[" * 100_000, "{}", "null"])
def test_what_is_no_record_is_refused(odd):
    with pytest.raises(ValueError, match=r"no JSON|not a record"):
        read(odd)


def test_a_run_of_another_scale_or_machine_is_not_gone_on_with(tmp_path):
    for before, message in (
        (
            replace(made_up(), options={"quick": False, "rounds": None, "seed": 0}),
            "another run: quick was False, is True",
        ),
        (replace(made_up(), options={"quick": True, "rounds": None, "seed": 0}), "another run: kernel was 'Linux 6'"),
    ):
        with pytest.raises(ValueError, match=message):
            running.run(STORIES, tmp_path, QUICK, before=before)


def test_what_is_done_is_not_measured_again_and_what_cannot_be_is_told(tmp_path):
    calls = []

    def story(name, error=None):
        def run(*_):
            calls.append(name)
            if error:
                raise error
            return made_up().of(models.STORY)

        return replace(models.STORY, name=name, run=run)

    three = [story("a"), story("b", OSError(28, "No space left on device", "weights")), story("c", RuntimeError("odd"))]
    steps, told = [], []
    found = running.run(three, tmp_path, QUICK, json_path=tmp_path / "r.json", told=lambda _, o: told.append(type(o)))
    assert told == [Kept, Absent, Absent]
    assert "No space left" in found.missing(three[1])
    again = running.run(three[:2], tmp_path, QUICK, before=found, watch=steps.append)
    assert calls == ["a", "b", "c", "b"]
    assert [one.name for one in again.absent] == ["c", "b"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.json"]


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_a_story_is_measured_small(name, tmp_path, monkeypatch, request):
    (story,) = [story for story in STORIES if story.name == name]
    for told, module in ((models.STORY, models), (images.STORY, images)):  # other rows have tests of their own
        monkeypatch.setattr(module, "WAYS", (told.telling[0].before, told.telling[0].after, told.telling[0].ours))
    if name == "structs":
        binary = request.getfixturevalue("bench_structs")
        monkeypatch.setattr("onecopy_bench.structs.program.find", lambda: binary)
    seen = []
    found = running.run([story], tmp_path, QUICK, json_path=tmp_path / "r.json", watch=seen.append)
    if found.absent:
        pytest.skip(found.absent[0].reason)
    samples = found.of(story)
    assert {(sample.state, sample.reason) for sample in samples.samples} == {("ok", "")}
    assert list(reading.headlines(story, samples))
    assert seen[-1].progress.done == seen[-1].progress.total
    assert read((tmp_path / "r.json").read_text()) == found
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]  # data and journal are gone


def test_the_tool_fills_a_page_from_a_record(tmp_path, python):
    path, target = tmp_path / "r.json", tmp_path / "page.md"
    record.write(path, made_up())
    target.write_text(f"# Title\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    run = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    python(run, ROOT / "tools/fill_tables.py", path, target)
    assert target.read_text() == f"# Title\n{page.block(made_up(), STORIES)}\nafter\n"
