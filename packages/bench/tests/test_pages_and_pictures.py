"""Reports: every number in its place, every leader named, no ratio where none is claimed, nothing obeyed."""

import subprocess
import sys
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from onecopy_bench.engine import pictures
from onecopy_bench.scenarios.open import page as markdown
from onecopy_bench.scenarios.open import picture
from onecopy_bench.scenarios.open.summary import cases_of


def line_of(page: str, name: str) -> list[str]:
    (line,) = [line for line in page.splitlines() if line.startswith((f"| {name} |", f"| **{name}** |"))]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_row_tells_what_it_is_and_what_it_costs(record_of):
    cells = dict(zip(markdown.HEADINGS, line_of(markdown.page([record_of()]), "map+warm"), strict=True))
    assert cells["loader"] == "**map+warm**"
    assert cells["holds"] == "maps"
    assert cells["all resident, ms (min-max)"] == "40.0 (40.0-40.0)"
    assert cells["x of ours"] == "1.00"
    assert cells["memory above empty, MB"] == "92.0"
    assert cells["private, MB"] == "0.500"
    assert cells["faults major / minor"] == "4.00 / 40.0"
    assert line_of(markdown.page([record_of()]), "copy")[2] == "copies"


def test_the_fastest_row_comes_first_and_what_has_no_time_last(record_of):
    rows = [line.name for line in markdown.sorted_lines(cases_of(record_of())[0])]
    assert rows == ["map+warm", "map", "numpy.memmap", "copy", "empty"]


def test_a_ratio_of_copies_to_maps_is_written_only_where_fresh_memory_is_fast(record_of):
    assert line_of(markdown.page([record_of()]), "copy")[4] == "10.00"
    page = markdown.page([record_of(touch_ms=100.0)])
    assert line_of(page, "copy")[4] == markdown.WITHHELD
    assert line_of(page, "numpy.memmap")[4] == "1.25"
    assert "no ratio of times between mapping and copying loaders is claimed here" in page
    assert "ran at 1.0 GB/s (1.0-1.0) for first-touch-4k" in page
    assert "and 3 GB/s are needed" in page
    assert "claimed here" not in markdown.page([record_of()])


def test_a_peer_that_is_ahead_is_marked_and_waits_for_its_explanation(record_of, change):
    record = change(record_of(), lambda s: s.row == "numpy.memmap", processes={"resident_ns": 30_000_000})
    page = markdown.page([record])
    assert line_of(page, "numpy.memmap")[4] == "0.75 \u25c0"
    assert f"* **numpy.memmap**, 0.75 of our time: {markdown.UNEXPLAINED}" in page
    notes = {"cold, 4 processes, numpy.memmap": "the disk reads 8 MiB ahead"}
    assert "0.75 of our time: the disk reads 8 MiB ahead" in markdown.page([record], notes=notes)
    close = change(record_of(), lambda s: s.row == "numpy.memmap", processes={"resident_ns": 39_000_000})
    assert "\u25c0" not in markdown.page([close])


def test_every_case_has_its_table_and_the_ceilings_come_once(record_of):
    cold, warm = record_of(n=2), record_of(n=2, cache="warm")
    both = replace(
        cold,
        options={**cold.options, "caches": ["cold", "warm"]},
        samples=(*cold.samples, *(s for s in warm.samples if s.case)),
    )
    page = markdown.page([both], "p.png")
    assert page.count("### Cold, 2 processes") == page.count("### Warm, 2 processes") == 1
    assert page.count("### Ceilings") == page.count("O_DIRECT x 4 into a reused") == 1
    assert "![Times and memory, by loader](p.png)" in page


def test_a_row_that_failed_stays_in_the_table_with_its_state(record_of):
    record = record_of()
    samples = tuple(
        replace(s, state="timeout", reason="late", processes=()) if s.row == "map" else s for s in record.samples
    )
    page = markdown.page([replace(record, samples=samples)])
    assert line_of(page, "map")[3] == "timeout"
    assert "map: 7 of 7 samples timeout (late)." in page
    everything = tuple(replace(s, state="timeout", processes=()) for s in record.samples)
    assert "timeout" in markdown.page([replace(record, samples=everything)])


def test_hostile_words_stay_in_their_cell(record_of):
    record = record_of()
    rows = (replace(record.rows[0], detail="a|b<script>\n\x1b[2J`"), *record.rows[1:])
    page = markdown.page([replace(record, rows=rows, data={**record.data, "file": "x](http://a)\n# y"})])
    assert "a\\|b\\<script>\\\\n\\\\x1b\\[2J\\`" in page
    assert "\x1b" not in page
    assert "\n# y" not in page


def test_a_picture_is_a_file_of_the_kind_its_name_tells(record_of, tmp_path):
    record = record_of()
    odd = replace(record, data={**record.data, "file": "a$b$ {x}.safetensors"})
    records = [odd, record_of(n=1, cache="warm", touch_ms=100.0)]
    for name in ("a.svg", "again.svg", "a.png"):
        pictures.save(tmp_path / name, lambda figure: picture.draw(figure, records))
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")
    assert (tmp_path / "a.svg").read_text() == (tmp_path / "again.svg").read_text()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_what_a_picture_shows_is_what_the_record_says(record_of):
    times, memory = Figure().subplots(1, 2)
    record = record_of(touch_ms=100.0)
    picture.draw_times(times, cases_of(record)[0])
    picture.draw_memory(memory, cases_of(record)[0])
    names = [label.get_text() for label in times.get_yticklabels()]
    assert names == ["copy", "numpy.memmap", "map", "map+warm"]
    assert [bar.get_width() for bar in times.patches] == pytest.approx([0.4, 0.05, 0.041, 0.04])
    assert [bool(bar.get_hatch()) for bar in times.patches] == [True, False, False, False]
    assert [text.get_text() for text in times.texts] == ["0.400 s", "50.0 ms", "41.0 ms", "40.0 ms"]
    assert [bar.get_width() for bar in memory.patches] == pytest.approx([364, 91, 92, 92])
    lines = sorted(line.get_xdata()[0] for line in times.lines if len(set(line.get_xdata())) == 1)
    assert {0.03, 0.038} <= set(lines)
    assert "touched at 1.0 GB/s here" in picture.caption([record])


def test_a_run_without_a_good_sample_can_be_drawn(record_of, tmp_path):
    record = record_of()
    record = replace(record, samples=tuple(replace(s, state="crashed", processes=()) for s in record.samples))
    pictures.save(tmp_path / "a.png", lambda figure: picture.draw(figure, [record]))
    assert (tmp_path / "a.png").stat().st_size > 0


def test_what_draws_and_writes_pages_is_imported_when_it_is_needed_and_not_before():
    code = "import sys, onecopy_bench.cli; print(*{'matplotlib', 'jinja2'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split() == []
