"""The layer checks hold, and they see a violation."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.places import ROOT


def check_cpp(root: Path, tool: str = "check_layers.py") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / tool), str(root)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in (
        "include",
        "src",
        "bindings",
        "python",
        "packages/bench/src",
        "packages/images/src",
        "packages/monitor/src",
        "packages/onnxruntime/src",
        "packages/records/src",
        "packages/remote/src",
    ):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def plant(path: Path, line: str) -> None:
    path.write_text(line + "\n" + path.read_text())


def test_the_tree_keeps_its_layers(tree: Path) -> None:
    result = check_cpp(tree)
    assert result.returncode == 0, result.stdout


def test_a_second_type_of_one_name_is_found(tree: Path) -> None:
    assert check_cpp(tree, "check_types.py").stdout == ""
    for place, text in {
        "src/page_cache/totals.cpp": "namespace onecopy {\nstruct Plan {\n  int x;\n};\n}",
        "src/formats/npy.cpp": 'auto c = "}"; namespace onecopy::npz { namespace { enum class Zip { no }; } }',
        "src/formats/npz.cpp": "namespace onecopy::npz { class Zip final : public Base<int> { struct Plan {}; }; }",
    }.items():
        with (tree / place).open("a") as file:
            file.write(text)
    result = check_cpp(tree, "check_types.py")
    assert result.returncode == 1
    assert result.stdout.splitlines() == [
        "onecopy::Plan is defined in src/page_cache/totals.cpp and in src/page_cache/warm_plan.hpp",
        "onecopy::npz::Zip is defined in src/formats/npy.cpp and in src/formats/npz.cpp",
    ]


@pytest.mark.parametrize(
    ("place", "line", "message"),
    [
        ("src/store/store.cpp", "static std::mutex lock;", "use ForkMutex"),
        ("bindings/bind_files.cpp", "  mutable std::shared_mutex lock_;", "use ForkMutex"),
        ("bindings/bind_files.cpp", "  std::shared_ptr<const Mapping> mapping_;", "use Shared, Pin or WithoutGil"),
        (
            "bindings/records/lazy.cpp",
            "  PyObject_HEAD std::shared_ptr<const T> source;",
            "use Shared, Pin or WithoutGil",
        ),
        ("bindings/bind_store.cpp", "const auto* state = PyEval_SaveThread();", "use ReleaseGil"),
    ],
)
def test_state_that_is_shared_without_the_types_for_it_is_found(
    tree: Path, place: str, line: str, message: str
) -> None:
    assert check_cpp(tree, "check_lifetimes.py").stdout == ""
    plant(tree / place, line)
    result = check_cpp(tree, "check_lifetimes.py")
    assert result.returncode == 1
    assert result.stdout.startswith(f"{place}:1: ")
    assert message in result.stdout


@pytest.mark.parametrize(
    ("place", "line", "message"),
    [
        ("src/formats/index.cpp", '#include "onecopy/files/mapping.hpp"', "formats may use base, formats"),
        ("src/files/mapping.cpp", '#include "page_cache/warm_plan.hpp"', "files may use base, files, os"),
        ("src/store/store.cpp", '#include "formats/wire/json.hpp"', "store may use base, files, os, store"),
        ("src/arrays/array_file.cpp", "#include <sys/mman.h>", "system headers belong to os"),
        (
            "include/onecopy/files/mapping.hpp",
            '#include "os/os.hpp"',
            "public headers include public headers only",
        ),
        ("bindings/bind_files.cpp", '#include "os/os.hpp"', "bindings use public headers only"),
    ],
)
def test_a_planted_include_is_found(tree: Path, place: str, line: str, message: str) -> None:
    plant(tree / place, line)
    result = check_cpp(tree)
    assert result.returncode == 1
    assert place in result.stdout
    assert message in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("python/onecopy/files/mapping.py", "import onecopy.arrays"),
        ("python/onecopy/memory/proc.py", "import onecopy.errors"),
        ("python/onecopy/store/__init__.py", "import onecopy.arrays"),
        ("python/onecopy/files/page_cache.py", "import rich"),
        ("python/onecopy/data/caching.py", "import onecopy_records.rows"),
        ("python/onecopy/arrays/opening.py", "import onecopy_remote"),
        ("packages/records/src/onecopy_records/rows.py", "import onecopy_bench"),
        ("packages/records/src/onecopy_records/rows.py", "import onecopy_images"),
        ("packages/records/src/onecopy_records/rows.py", "import onecopy_records.sharing"),
        ("python/onecopy/run/holder.py", "import onecopy.images"),
        ("python/onecopy/run/hooks.py", "import onecopy_onnxruntime"),
        ("packages/onnxruntime/src/onecopy_onnxruntime/options.py", "import onecopy_onnxruntime.sessions"),
        ("packages/images/src/onecopy_images/regions.py", "import onecopy_images.outputs"),
        ("python/onecopy/memory/explaining.py", "import onecopy_monitor.text_tables"),
        ("packages/monitor/src/onecopy_monitor/samples.py", "import onecopy_monitor.watching"),
        ("packages/remote/src/onecopy_remote/origin.py", "import onecopy_remote.fetching"),
    ],
)
def test_a_planted_import_is_found(tree: Path, place: str, line: str) -> None:
    source = (tree / place).read_text()
    (tree / place).write_text(source + f"\n{line}\n")
    program = (
        "import glob, sys; sys.path[:0] = ['python', *glob.glob('packages/*/src')]; "
        "from importlinter.cli import lint_imports_command as run; run(['--no-cache'], standalone_mode=True)"
    )
    result = subprocess.run(
        [sys.executable, "-S", "-c", "import sys; sys.path[:] = " + repr(sys.path) + "; " + program],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1, result.stdout + result.stderr
    assert "broken" in result.stdout
