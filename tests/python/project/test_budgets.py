"""What importing and installing may cost: modules and bytes, which are the same on every machine, and never times.

A budget is today's number and a margin. A larger budget needs a sentence of reason beside it.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.installed.check_dist import extension_at_most

import onecopy as oc
from onecopy import _core

MIB = 1 << 20
HOME = Path(oc.__file__).parent

# After the import of typing, pathlib and re, which programs with numpy have, and which differ from Python to Python:
# lines that are run, new modules, anonymous KiB.
IMPORTS = {
    "nothing but the lazy package": ("import onecopy", 6, 200),
    "the extension: its tables of types": ("import onecopy._core", 8, 900),
    "mapping a file: no json, no dataclasses": ("import onecopy; onecopy.Mapping", 12, 1000),
    "arrays: what opening needs, before numpy": ("import onecopy; onecopy.open", 21, 1600),
    "rows, with their codecs": ("import onecopy; onecopy.share", 64, 5000),
    "all modules: as much as numpy alone": (
        "import onecopy; [getattr(onecopy, name) for name in onecopy.__all__]",
        95,  # memory.smaps lets processes of `onecopy run` end without memory.proc; onecopy_records is a package
        6500,
    ),
}
COST = """
import sys, typing, pathlib, re, importlib
def anonymous():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Anonymous:"))
before, modules = anonymous(), set(sys.modules)
exec(sys.argv[1])
heavy = {"numpy", "ml_dtypes", "safetensors", "torch", "jax", "tensorflow", "pandas", "click", "rich"}
print(len(set(sys.modules) - modules), anonymous() - before, *sorted(heavy & set(sys.modules)))
"""


@pytest.fixture
def bytecode(tmp_path, monkeypatch) -> None:
    """Let interpreters use compiled modules, as where a package is installed."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))


@pytest.mark.parametrize("name", IMPORTS)
def test_importing_keeps_to_its_budget_of_modules_and_memory(python, name, bytecode):
    if not Path("/proc/self/smaps_rollup").exists():
        pytest.skip("this kernel does not say what memory is anonymous")
    line, modules, kib = IMPORTS[name]
    python(COST, line)  # compiles, which takes memory
    words = python(COST, line).split()
    assert words[2:] == []
    assert int(words[0]) <= modules, f"{name}: {words[0]} modules"
    assert int(words[1]) <= kib, f"{name}: {words[1]} KiB"


def functions_of(call: Callable[[], object]) -> list[str]:
    call()  # what the first call loads
    names: list[str] = []
    sys.setprofile(lambda frame, event, _: names.append(frame.f_code.co_qualname) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return names


def test_calls_that_programs_make_often_go_through_few_functions_of_python(tmp_path):
    path = str(tmp_path / "model.safetensors")
    oc.save(path, {"w": np.zeros(1000)})
    with oc.open(path) as file:
        for call in (lambda: oc.open(path), file.warm, lambda: file["w"]):
            assert len(functions_of(call)) <= 9
    assert len(functions_of(lambda: oc.share(["Ada", "Grace"]).close())) <= 14  # it was 61


def test_help_lists_the_verbs_without_numpy_and_without_the_benchmarks(python):
    told = python("""
        import sys
        from onecopy.cli import main
        main(["--help"])
        heavy = {"numpy", "torch", "matplotlib", "starlette", "onecopy_bench"}
        print("loaded:", *sorted(heavy & set(sys.modules)))
    """)
    assert re.search(r"^  bench +\w", told, re.MULTILINE)
    assert told.splitlines()[-1].split() == ["loaded:"]


def test_the_python_files_of_the_core_keep_to_their_budget():
    sizes = {
        path: path.stat().st_size for path in HOME.rglob("*") if path.suffix in {".py", ".pyi", ".html", ".css", ".js"}
    }
    assert 500_000 < sum(sizes.values()) <= 830_000
    # What one person can know: docs/decisions/packaging.md. What is more belongs in a distribution in packages/.
    code = [path.read_bytes().count(b"\n") for path in sizes if path.suffix == ".py"]
    assert len(code) <= 100
    assert sum(code) <= 18_000
    # 800 lines of one subject, with its docstrings: a limit of 25,000 bytes divided subjects by their size.
    assert max(sizes.values()) <= 35_000, max(sizes, key=sizes.__getitem__)


def test_the_extension_stays_small():
    contents = Path(_core.__file__).read_bytes()
    assert len(contents) <= extension_at_most(contents)


def tool(*command: object) -> str:
    name = str(command[0])
    if not shutil.which(name):
        pytest.skip(f"{name} is not here")
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout


def test_the_extension_shows_one_name_and_needs_the_system_alone():
    shown = [line.split()[-1] for line in tool("nm", "-D", "--defined-only", _core.__file__).splitlines()]
    assert shown == ["PyInit__core"]
    needed = re.findall(r"NEEDED.*\[([\w+-]+)\.so", tool("readelf", "-d", _core.__file__))
    assert set(needed) <= {"libstdc++", "libm", "libgcc_s", "libc", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64"}
