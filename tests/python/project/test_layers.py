"""The layer checks hold, and they see a violation."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.places import ROOT


def check(root: Path, tool: str) -> str:
    """Run a check of the tree below `root`; return what it found, or "" if that is nothing."""
    command = [sys.executable, str(ROOT / "tools" / tool), str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == bool(done.stdout)
    return done.stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    packages = [path.relative_to(ROOT) for path in ROOT.glob("packages/*/src")]
    for folder in ("include", "src", "bindings", "python", *packages):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize("tool", ["check_layers.py", "check_types.py", "check_lifetimes.py"])
def test_the_tree_has_no_faults(tool: str) -> None:
    assert check(ROOT, tool) == ""


def test_a_second_type_of_one_name_is_found(tree: Path) -> None:
    for place, text in {
        "src/page_cache/totals.cpp": "namespace onecopy {\nstruct Plan {\n  int x;\n};\n}",
        "src/formats/npy.cpp": 'auto c = "}"; namespace onecopy::npz { namespace { enum class Zip { no }; } }',
        "src/formats/npz.cpp": "namespace onecopy::npz { class Zip final : public Base<int> { struct Plan {}; }; }",
    }.items():
        with (tree / place).open("a") as file:
            file.write(text)
    assert check(tree, "check_types.py").splitlines() == [
        "onecopy::Plan is defined in src/page_cache/totals.cpp and in src/page_cache/warm_plan.hpp",
        "onecopy::npz::Zip is defined in src/formats/npy.cpp and in src/formats/npz.cpp",
    ]


OWNER = "use Shared, Pin or WithoutGil"
PLANTED = [
    ("src/store/store.cpp", "static std::mutex lock;", "use ForkMutex"),
    ("bindings/bind_files.cpp", "  mutable std::shared_mutex lock_;", "use ForkMutex"),
    ("bindings/bind_files.cpp", "  std::shared_ptr<const Mapping> mapping_;", OWNER),
    ("bindings/records/lazy.cpp", "  PyObject_HEAD std::shared_ptr<const T> source;", OWNER),
    ("bindings/bind_store.cpp", "const auto* state = PyEval_SaveThread();", "use ReleaseGil"),
    ("src/formats/index.cpp", '#include "onecopy/files/mapping.hpp"', "formats may use base, formats"),
    ("src/files/mapping.cpp", '#include "page_cache/warm_plan.hpp"', "files may use base, files, os"),
    ("src/store/store.cpp", '#include "formats/wire/json.hpp"', "store may use base, files, os, store"),
    ("src/arrays/array_file.cpp", "#include <sys/mman.h>", "system headers belong to os"),
    ("include/onecopy/files/mapping.hpp", '#include "os/os.hpp"', "public headers include public headers only"),
    ("bindings/bind_files.cpp", '#include "os/os.hpp"', "bindings use public headers only"),
]


@pytest.mark.parametrize(("place", "line", "message"), PLANTED)
def test_a_planted_line_is_found(tree: Path, place: str, line: str, message: str) -> None:
    (tree / place).write_text(f"{line}\n{(tree / place).read_text()}")
    found = check(tree, "check_layers.py" if line.startswith("#include") else "check_lifetimes.py")
    assert place in found
    assert message in found


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
    (tree / place).write_text(f"{(tree / place).read_text()}\n{line}\n")
    program = (
        f"import sys; sys.path[:] = {sys.path!r}; "
        "import glob; sys.path[:0] = ['python', *glob.glob('packages/*/src')]; "
        "from importlinter.cli import lint_imports_command as run; run(['--no-cache'], standalone_mode=True)"
    )
    command = [sys.executable, "-S", "-c", program]
    result = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "broken" in result.stdout
