"""Pictures: well-formed, true to the numbers, and no name out of a process is more than text in them."""

import html.parser
import json
import re
import resource
import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings, strategies as st
from packages.monitor.tests.samples import MB, file_sample, process, row

from onecopy_monitor import COLUMNS, End, ProcessSample, Recorder, Sample, Series, read_recording
from onecopy_monitor.pictures import draw, drawn
from onecopy_monitor.pictures.figures import LIGHT, figure_of
from onecopy_monitor.pictures.panels import BANDS, picture_of
from onecopy_monitor.recording import compare

EVIL = "</title></svg></script><script>alert(1)</script><b onload='x'>&amp;\x1b[2J\n\udc80]]>"
SVG = "{http://www.w3.org/2000/svg}"


def series_of(looks: int = 5, processes: int = 3, name: str = "worker") -> Series:
    series, pids = Series(), range(1, processes + 1)
    for at in range(looks):
        some = tuple(process(pid, row(MB * (at + pid), MB), 9 * MB, name) for pid in pids)
        total = row(MB * sum(at + pid for pid in pids), MB, 2 * MB, 3 * MB)
        series.add(Sample(float(at), total, some, (file_sample(name, 80 * MB, 0),)))
    return series


def tree_of(series: Series, **options) -> ET.Element:
    return ET.fromstring(drawn([("run", series)], ".svg", **options))


def texts(tree: ET.Element) -> list[str]:
    return [one.text or "" for one in tree.iter(f"{SVG}text")]


def test_a_picture_shows_what_was_sampled_and_of_one_process_no_panel_beside_that_of_the_group():
    series = series_of()
    words = texts(tree_of(series, title="my run"))
    assert "my run" in words
    assert {"anonymous", "files, clean", "files, dirty", "shared memory", "sum of RSS", "share of a process"} <= set(
        words
    )
    assert "run: 3 processes, deduplicated total" in words
    assert "24.0 MB at most" in words  # 7 + 6 + 5 of processes, and 6 of files and shared memory
    assert "worker (3), share of at most 8.00 MB" in words
    assert words.count("seconds") == 2


def test_areas_stand_on_one_another_at_the_right_height():
    series = series_of()
    axes = figure_of(picture_of([("run", series)], "", 8), LIGHT).axes[0]
    height = [0.0] * 5
    for name, band in zip(BANDS, axes.collections, strict=True):
        (path,) = band.get_paths()
        below = height
        height = [under + own for under, own in zip(below, series.total.numbers(name), strict=True)]
        corners = {(at, nbytes) for edge in (below, height) for at, nbytes in enumerate(edge)}
        assert {tuple(corner) for corner in path.vertices.tolist()} == corners
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylim()[1] > max(height)


def test_everything_is_inside_the_picture():
    tree = tree_of(series_of(processes=12), processes=9)
    width, height = float(tree.get("width")), float(tree.get("height"))
    for one in tree.iter(f"{SVG}text"):
        assert 0 <= float(one.get("x")) <= width
        assert 0 <= float(one.get("y")) <= height
    for one in tree.iter(f"{SVG}path"):
        if "#DDDDDD".lower() not in one.get("style", ""):  # the edges of marks are beside them
            for x, y in re.findall(r"[ML] (-?[\d.]+) (-?[\d.]+)", one.get("d")):
                assert -width <= float(x) <= width
                assert -height <= float(y) <= height
    assert "and 3 more processes, which used less memory" in texts(tree)


@pytest.mark.parametrize("looks", [1, 2, 5000])
def test_any_number_of_samples_is_drawn_in_a_bounded_size(looks):
    svg = drawn([("run", series_of(looks))], ".svg")
    ET.fromstring(svg)
    assert len(svg) < 300_000
    assert b"NaN" not in svg
    words = texts(tree_of(series_of(processes=1)))
    assert "run: one process" in words
    assert not any("share " in one for one in words)


def test_thinned_points_keep_the_highest():
    series = Series()
    for at in range(5000):
        series.add(Sample(at / 10, row(999 * MB if at == 3333 else MB), (), ()))
    panel = picture_of([("run", series)], "", 8).runs[0][0]
    assert len(panel.times) < 700
    assert max(panel.columns["anonymous"]) == 999 * MB


def test_names_are_text_in_svg_and_html():
    series = series_of(name=EVIL)
    tree = tree_of(series, title=EVIL)
    assert {one.tag for one in tree.iter()} <= {
        SVG + tag for tag in ("svg", "title", "style", "defs", "clipPath", "g", "rect", "text", "path", "use")
    }
    assert any("<script>alert(1)" in one for one in texts(tree))
    content = drawn([(EVIL, series), (EVIL, series)], ".html", title=EVIL).decode()
    assert "\x1b" not in content
    seen = Tags()
    seen.feed(content)
    assert seen.tags.count("script") == 2
    assert "b" not in seen.tags
    assert "onload" not in seen.attributes
    assert json.loads(seen.data)["panels"]


class Tags(html.parser.HTMLParser):
    """Collects tags, attributes, and the data of the page."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.data, self._inside = [], set(), "", False

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self._inside = ("id", "data") in attrs

    def handle_endtag(self, tag):  # noqa: ARG002
        self._inside = False

    def handle_data(self, data):
        if self._inside:
            self.data += data


def test_a_page_is_one_file_with_all_numbers_and_loads_nothing():
    series = series_of()
    content = drawn([("run", series)], ".html").decode()
    assert not re.search(r"""src\s*=|@import|href\s*=\s*["']?(?!["']?#)|url\s*\((?!#)""", content)
    assert "default-src 'none'" in content
    seen = Tags()
    seen.feed(content)
    told = json.loads(seen.data)
    assert told["panels"][0]["columns"]["anonymous"] == series.total.numbers("anonymous")
    assert set(told["panels"][0]["columns"]) == set(COLUMNS) == set(told["names"])
    assert len(told["panels"]) == 4


@pytest.mark.parametrize(("theme", "follows", "dark"), [("auto", 1, 0), ("light", 0, 0), ("dark", 0, 1)])
def test_a_theme_follows_the_system_or_is_light_or_dark(theme, follows, dark):
    svg = drawn([("run", series_of())], ".svg", theme=theme)
    assert (b"prefers-color-scheme" in svg, b"#15181d" in svg) == (follows, dark)


@pytest.mark.parametrize(
    ("name", "series", "theme", "message"),
    [
        ("x.jpg", series_of(), "auto", r"\.svg, \.html or \.png, not '\.jpg'"),
        ("x", series_of(), "auto", "not ''"),
        ("x.svg", series_of(), "blue", "theme must be .* 'blue'"),
        ("x.svg", Series(), "auto", "cannot draw a run without samples"),
    ],
)
def test_what_cannot_be_drawn_is_an_error(tmp_path, name, series, theme, message):
    with pytest.raises(ValueError, match=message):
        draw([("run", series)], tmp_path / name, theme=theme)
    assert not list(tmp_path.iterdir())


def test_a_picture_that_cannot_be_written_leaves_the_old_one(tmp_path, in_child):
    path = tmp_path / "x.svg"
    path.write_text("the old one")

    def write() -> str:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        with pytest.raises(OSError, match="File too large") as refused:
            draw([("run", series_of())], path)
        return refused.value.filename

    assert in_child(write) == str(path)
    assert path.read_text() == "the old one"
    assert list(tmp_path.iterdir()) == [path]
    link = tmp_path / "link.svg"
    link.symlink_to(path)
    draw([("run", series_of())], link)
    assert link.is_symlink()
    assert path.read_bytes().startswith(b"<svg")


def test_a_png_is_twice_as_large_as_the_svg_and_not_empty(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    draw([("run", series_of())], tmp_path / "x.png")
    pixels = image.imread(tmp_path / "x.png")
    tree = tree_of(series_of())
    assert pixels.shape[1::-1] == (2 * float(tree.get("width")), 2 * float(tree.get("height")))
    orange = (pixels[..., :3] * 255).round() == (0xD5, 0x5E, 0)
    assert orange.all(axis=2).mean() > 0.1  # of anonymous memory


sizes = st.one_of(st.integers(0, 2**62 - 1), st.integers(0, 10))
rows = st.tuples(*[sizes] * len(COLUMNS))
names = st.text(max_size=5).filter(lambda name: "nan" not in name.lower())  # hypothesis likes to try it
moments = st.lists(st.floats(0, 1e11), min_size=1, max_size=8).map(sorted)


@pytest.mark.slow
@settings(max_examples=20)
@given(moments, st.data())
def test_whatever_a_recording_can_say_is_drawn(found, data):
    series = Series()
    for at in found:
        some = data.draw(st.lists(st.tuples(st.integers(1, 4), rows), max_size=3, unique_by=lambda one: one[0]))
        processes = tuple(ProcessSample(pid, 1.0, 0, data.draw(names), it, 5, 1, 1, 0.5) for pid, it in some)
        series.add(Sample(at, data.draw(rows), processes, ()))
    page = drawn([("run", series), ("again", series)], ".html").decode()
    assert "nan" not in page.lower()
    ET.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])


@pytest.fixture
def recorded(tmp_path):
    """Write recordings."""

    def write(name: str, series_rows: list[tuple[int, ...]], command=("python", "x.py"), **end) -> str:
        path = tmp_path / name
        with Recorder(path, command) as recorder:
            recorder.begin()
            for at, total in enumerate(series_rows):
                process = ProcessSample(7, 1.0, 1, "python", total, total[0], 90 + 10 * at, 4 * at, 5 + at / 2)
                recorder.add(Sample(float(at), total, (process,), ()))
            if end:
                recorder.end(End(float(len(series_rows)), **end))
        return str(path)

    return write


def cells(table: str) -> dict[str, list[str]]:
    lines = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    return {line[0].strip(): [cell.strip() for cell in line[1:]] for line in lines[2:]}


def test_a_comparison_has_both_and_their_ratio(recorded):
    facts = {"max_rss": 300 * MB, "minor_faults": 70, "major_faults": 30, "user_s": 1.0, "system_s": 0.5}
    before = recorded("a", [row(10 * MB), row(200 * MB)], exit=0, **facts)
    after = recorded("b", [row(10 * MB), row(50 * MB, 100 * MB)], ("x`|<b>\x1b", "y"), exit=-9)
    text = compare(read_recording(before), read_recording(after))
    table = cells(text)
    assert table["anonymous, peak"] == ["200 MB", "50.0 MB", "0.250"]
    assert table["files, clean, peak"] == ["0 B", "100 MB", ""]
    assert table["largest process, peak RSS"] == ["300 MB", "50.0 MB", "0.167"]
    assert table["page faults"] == ["100", "14", "0.140"]
    assert table["CPU seconds"] == ["1.50", "0.500", "0.333"]
    assert text.splitlines()[1] == r"* after: `x'|<b>\x1b y` (signal 9)"


def test_diff_prints_a_table_and_draws_both(recorded, tmp_path, onecopy_command):
    before, after = recorded("a", [row(10 * MB), row(200 * MB)]), recorded("b", [row(10 * MB)] * 3)
    done = onecopy_command("diff", before, after, "-o", str(tmp_path / "d.svg"))
    assert (done.returncode, done.stderr) == (0, "")
    assert cells(done.stdout)["anonymous, peak"] == ["200 MB", "10.0 MB", "0.050"]
    words = texts(ET.parse(tmp_path / "d.svg").getroot())
    assert "before: python x.py: one process" in words
    assert "after: python x.py: one process" in words
    told = json.loads(onecopy_command("diff", "--json", before, after).stdout)
    assert told["before"]["anonymous, peak"] == 200 * MB
    assert told["after"]["command"] == ["python", "x.py"]


@pytest.mark.parametrize("runs", [["a"], ["a", "a"]])
def test_plot_and_diff_draw_as_many_processes_as_requested_in_a_theme_with_a_title(tmp_path, onecopy_command, runs):
    with Recorder(tmp_path / "a") as recorder:
        recorder.add(Sample(0.0, row(6 * MB), tuple(process(pid, row(pid * MB)) for pid in (1, 2, 3)), ()))
    options = ["--processes", "1", "--theme", "dark", "--title", "mine", "-o", "x.svg"]
    assert onecopy_command("plot" if len(runs) == 1 else "diff", *runs, *options, cwd=tmp_path).returncode == 0
    words = texts(ET.fromstring(svg := (tmp_path / "x.svg").read_text()))
    shown = [word for word in words if "share of at most" in word or word == "mine"]
    assert sorted(shown) == ["mine"] + ["worker (3), share of at most 3.00 MB"] * len(runs)
    assert len(runs) == 1 or "after: a: 3 processes, deduplicated total" in words
    assert "prefers-color-scheme" not in svg


@pytest.mark.parametrize("ending", ["svg", "html"])
@pytest.mark.parametrize("is_cut", [False, True])
def test_plot_draws_by_the_ending_and_reports_a_cut_recording(recorded, tmp_path, onecopy_command, ending, is_cut):
    run, picture = recorded("a", [row(10 * MB), row(200 * MB)]), tmp_path / f"x.{ending}"
    if is_cut:
        (tmp_path / "a").write_text((tmp_path / "a").read_text()[:-20])
    done = onecopy_command("plot", run, "-o", str(picture))
    assert done.returncode == 0
    assert (
        (f"warning: {run}: ignored the last line, which is incomplete" in done.stderr) == (done.stderr != "") == is_cut
    )
    assert "python x.py" in picture.read_text()


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["plot", "a", "-o", "x.gif"], 2, "must end in .svg, .html, .png"),
        (["plot", "a", "-o", "no/x.svg"], 2, "the parent of 'no/x.svg' does not exist"),
        (["plot", "empty", "-o", "x.svg"], 1, "empty: the recording has no samples"),
        (["plot", "missing", "-o", "x.svg"], 1, "missing: No such file or directory"),
        (["diff", "a", "foreign"], 1, "foreign: line 1: not a onecopy recording"),
        (["plot", "a", "-o", "folder.svg"], 1, "folder.svg: Is a directory"),
    ],
)
def test_what_is_wrong_is_one_line(recorded, tmp_path, words, status, message, onecopy_command):
    recorded("a", [row(MB)])
    recorded("empty", [])
    (tmp_path / "foreign").write_text('{"a": 1}\n')
    (tmp_path / "folder.svg").mkdir()
    done = onecopy_command(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_browser_shows_the_numbers_under_the_pointer(tmp_path):
    browser = shutil.which("chromium") or shutil.which("google-chrome") or pytest.skip("there is no browser here")
    content = drawn([("run", series_of())], ".html").decode()
    move = """<script>
const edge = svg.getBoundingClientRect(), panel = data.panels[0];
const at = {clientX: edge.left + panel.left + panel.width / 2, clientY: edge.top + panel.top + 9};
svg.dispatchEvent(new PointerEvent("pointermove", at));
</script></body>"""
    (tmp_path / "x.html").write_text(content.replace("</body>", move))
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    command += ["--dump-dom", (tmp_path / "x.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    box = done.stdout.partition('id="box"')[2].partition("</table>")[0]
    assert "<b>2.00 s</b>" in box
    assert "12.0 MB" in box  # 5 + 4 + 3


def test_no_line_crosses_the_label_of_the_peak():
    to_rgba = pytest.importorskip("matplotlib.colors").to_rgba
    (axes,) = figure_of(picture_of([("run", series_of(processes=1))], "", 3), LIGHT).axes
    label, line = axes.texts[0], axes.lines[0]
    assert "at most" in label.get_text()
    ground = label.get_bbox_patch()
    assert (ground.get_facecolor(), ground.get_edgecolor()[3]) == (to_rgba(LIGHT["paper"]), 0)
    assert label.get_zorder() > line.get_zorder()
