"""`onecopy images` over real files, as a user runs it: in a process of its own."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from tests.support.images import MIST
from tests.support.places import needs

import onecopy as oc
from onecopy_images.cli.stitch import in_order_of_names, times
from onecopy_images.position_files import parse_positions

tifffile = pytest.importorskip("tifffile")
pytest.importorskip("imagecodecs")
pictures = pytest.importorskip("PIL.Image")

pytestmark = pytest.mark.processes


def scene() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 60000, (190, 280), np.uint16)


@pytest.fixture
def folder(tmp_path) -> Path:
    """Give six tiles of a scene, three in a row, with an overlap of 10, and the list of where they lie."""
    found = tmp_path / "tiles"
    found.mkdir()
    lines = []
    for number in range(6):
        y, x = 90 * (number // 3), 90 * (number % 3)
        tifffile.imwrite(found / f"t{number + 7}.tif", scene()[y : y + 100, x : x + 100], compression="zlib")
        lines.append(f"file: t{number + 7}.tif; corr: 1.0; position: ({x}, {y}); grid: (0, 0);")
    (tmp_path / "list.txt").write_text("\n".join(lines) + "\n")
    return found


@pytest.mark.parametrize("how", ["positions", "grid"])
@pytest.mark.parametrize("name", ["out.oc", "out.ome.tif"])
def test_tiles_are_put_together(onecopy_process, folder, tmp_path, how, name):
    options = ["--positions", tmp_path / "list.txt"] if how == "positions" else ["--grid", "2x3", "--overlap", "10%"]
    done = onecopy_process("images", "stitch", folder, "-o", tmp_path / name, *options)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert f"{name}: 190 x 280 uint16 (106 kB) of 6 tiles, 100.0 % covered in " in said
    assert ("7 of 7 seams verified" in done.stderr) == (how == "grid")
    assert ("registering 6 tiles, 2 rows x 3 columns" in done.stderr) == (how == "grid")
    assert ("registered in " in said) == (how == "grid")
    with oc.images.open(tmp_path / name, store=tmp_path / "store") as image:
        assert np.array_equal(image.array, scene())


def test_json_has_the_positions(onecopy_command, folder, tmp_path):
    target = tmp_path / "out.oc"
    done = onecopy_command("images", "stitch", folder, "-o", target, "--grid", "2x3", "--json")
    facts = json.loads(done.stdout)
    assert facts["path"] == str(target)
    assert facts["tiles"]["t12.tif"] == {"row": 90, "column": 180}
    assert (facts["shape"], facts["guessed"], facts["hidden"]) == ([190, 280], [], [])
    assert facts["seconds_registering"] > 0
    assert facts["seconds"] == pytest.approx(facts["seconds_registering"] + facts["seconds_pasting"])


def test_the_rate_counts_all_channels():
    colour = oc.images.mosaic([np.zeros((20, 30, 3), np.uint8)], [(0, 0)])
    text = times(dataclasses.replace(colour, seconds=1.0), None)
    both = times(dataclasses.replace(colour, seconds=1.0), 2.0)
    colour.close()
    assert text == "in 1.00 s (1.80 kB/s)"
    assert both.startswith("in 3.00 s: registered in 2.00 s, pasted in 1")


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        ([], 2, "either --positions FILE or --grid RxC"),
        (["--grid", "2x3", "--positions", "x"], 2, "either --positions FILE or --grid RxC"),
        (["--grid", "3"], 2, "'3' is not a pair of numbers such as 5x4"),
        (["--grid", "2x3", "--overlap", "80%"], 2, "not an overlap above 0 % and at most 50 %"),
        (["--grid", "2x4"], 1, "2 rows and 4 columns has 8 tiles, not 6"),
        (["--grid", "2x3", "--first", "t1.tif"], 1, "--first 't1.tif'"),
        (["--grid", "2x3", "--names", "*.png"], 1, "'*.png'"),
        (["--grid", "2x3", "--size", "100x100"], 1, "(100, 100)"),
        (["--positions", "missing.txt"], 1, "missing.txt: No such file or directory"),
    ],
)
def test_what_is_wrong_is_one_line(onecopy_command, folder, tmp_path, options, status, words):
    done = onecopy_command("images", "stitch", folder, "-o", tmp_path / "out.oc", *options, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith("onecopy: ")
    assert words in done.stderr
    assert not (tmp_path / "out.oc").exists()


def test_a_file_that_is_there_is_replaced_only_with_force(onecopy_command, folder, tmp_path):
    (tmp_path / "out.oc").write_text("mine")
    arguments = ["images", "stitch", folder, "-o", tmp_path / "out.oc", "--positions", tmp_path / "list.txt"]
    done = onecopy_command(*arguments)
    assert done.returncode == 1
    assert "the path exists" in done.stderr
    assert (tmp_path / "out.oc").read_text() == "mine"
    assert onecopy_command(*arguments, "--force").returncode == 0
    assert np.array_equal(oc.images.open(tmp_path / "out.oc").array, scene())


def test_a_small_picture_is_written(onecopy_command, folder, tmp_path):
    done = onecopy_command("images", "view", folder / "t7.tif", "-o", tmp_path / "a.png", "--max-side", "25")
    assert done.returncode == 0, done.stderr
    assert "a.png: 25 x 25 pixels of 100 x 100" in " ".join(done.stdout.split())
    with pictures.open(tmp_path / "a.png") as picture:
        seen = np.asarray(picture)
    assert np.array_equal(seen, oc.images.thumbnail(scene()[:100, :100], 25))
    again = onecopy_command("images", "view", folder / "t7.tif", "-o", tmp_path / "a.png")
    assert again.returncode == 1
    assert "use --force to replace it" in again.stderr
    assert sorted(path.name for path in tmp_path.glob("a.png*")) == ["a.png"]


def test_a_zarr_array_is_viewed_too(onecopy_command, folder, tmp_path):
    pytest.importorskip("zarr")
    target = tmp_path / "out.zarr"
    onecopy_command("images", "stitch", folder, "-o", target, "--grid", "2x3", "--tile", "64x32")
    done = onecopy_command("images", "view", target)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.view.png").exists()


def test_a_picture_beside_its_image_is_no_tile(onecopy_command, folder, tmp_path):
    for path in sorted(folder.iterdir()):
        pictures.fromarray((tifffile.imread(path) >> 8).astype(np.uint8)).save(path.with_suffix(".png"))
        path.unlink()
    viewed = onecopy_command("images", "view", folder / "t7.png")
    assert viewed.returncode == 0, viewed.stderr
    assert (folder / "t7.view.png").exists()
    assert not (folder / "t7.png.png").exists()
    for options in ([], ["--names", "*.png"]):
        target = tmp_path / f"out{len(options)}.oc"
        done = onecopy_command("images", "stitch", folder, "-o", target, "--grid", "2x3", *options)
        assert done.returncode == 0, done.stderr


def test_an_image_is_decoded_into_the_store_once(onecopy_command, folder, tmp_path):
    pictures.fromarray(np.zeros((8, 9), np.uint8)).convert("P").save(tmp_path / "a.png")
    assert "palette indices" in " ".join(onecopy_command("images", "open", tmp_path / "a.png").stderr.split())
    assert onecopy_command("store", "prune", "--max-age", "0s", "--yes").returncode == 0
    first = onecopy_command("images", "open", folder / "t7.tif")
    assert first.returncode == 0, first.stderr
    path = Path(first.stdout.strip())
    assert path.parent == tmp_path / "cache"
    assert "level 0 of 1, 100 x 100 uint16, 20.0 kB: built here" in " ".join(first.stderr.split())
    second = json.loads(onecopy_command("images", "open", folder / "t7.tif", "--json").stdout)
    assert (second["path"], second["built"], second["shape"]) == (str(path), False, [100, 100])
    listed = json.loads(onecopy_command("store", "ls", "--json").stdout)
    assert [one["source"] for one in listed] == [str(folder / "t7.tif")]
    assert "1 artefact, " in onecopy_command("store", "prune", "--max-age", "0s", "--yes").stdout
    assert not path.exists()


def test_an_image_that_is_none_is_one_line(onecopy_process, tmp_path):
    (tmp_path / "a.tif").write_text("II*\0 and nothing more")
    done = onecopy_process("images", "open", tmp_path / "a.tif", "--max-bytes", "1MB")
    assert (done.returncode, done.stdout) == (1, "")
    lines = done.stderr.splitlines()
    assert lines[-1].startswith(f"onecopy: {tmp_path / 'a.tif'}: no installed library can read the image: ")
    assert all(line.startswith("onecopy: ") for line in lines)  # what libraries warn of, above it


@needs(MIST)
def test_mist_is_stitched_without_a_differing_pixel(onecopy_command, tmp_path):
    options = ["--positions", MIST / "global-positions-1.txt", "--first", "ImageName_t01_p05.tif", "--size", "1187x890"]
    done = onecopy_command("images", "stitch", MIST, "-o", tmp_path / "out.oc", *options)
    assert done.returncode == 0, done.stderr
    reference = tifffile.imread(MIST / "img-stitched-1.tif")
    assert np.count_nonzero(oc.images.open(tmp_path / "out.oc").array != reference) == 0


# --- the list of positions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a list of positions"),
        ("file: a.tif; corr: 1;", "not a list of positions"),
        ("file: ../a.tif; position: (1, 2);", r"line 1: '\.\./a\.tif'"),
        ("x\nfile: a.tif; position: (1, 2);\nfile: a.tif; position: (1, 2);", "line 3: 'a.tif'"),
        ("file: a.tif; position: (1, -2);", "line 1: .* 'a.tif' is negative"),
        ("file: a.tif; position: (-1, 2);", "line 1: .* 'a.tif' is negative"),
    ],
)
def test_a_damaged_list_of_positions_is_an_error(text, words):
    with pytest.raises(ValueError, match=words):
        parse_positions(text, "list.txt")


def test_names_with_numbers_are_in_the_order_of_these():
    assert in_order_of_names(["b1", "a10", "a9", "a09", "10", "9"]) == ["9", "10", "a09", "a9", "a10", "b1"]
