"""Examples of the C interface in other languages, with the library beside the extension: their sums are numpy's."""

import os
import pwd
import shutil
import subprocess

import numpy as np
import pytest
from tests.support.places import ROOT

import onecopy as oc

LIBRARY = ROOT / "build/python/src/libonecopy.so"
C = ROOT / "examples/c"
HOME = pwd.getpwuid(os.getuid()).pw_dir  # rustup keeps its compilers in it, and tests have a home folder of their own
VALUES = np.arange(1 << 20)


@pytest.fixture
def run(tmp_path):
    if not LIBRARY.exists():
        pytest.skip("libonecopy.so is not in build/python: make module-tests")
    oc.save(tmp_path / "model.safetensors", {"w": VALUES.astype(np.float32), "x": VALUES.astype(np.float64)})

    def run(name, *arguments):
        program = shutil.which(name, path=f"{os.environ['PATH']}:{tmp_path}") or pytest.skip(f"there is no {name} here")
        environment = {**os.environ, "HOME": HOME}
        done = subprocess.run(
            [program, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else done.stderr

    return run


@pytest.mark.slow
def test_rust_sums_a_slice_of_a_file_and_gets_errors_as_results(run):
    search = ("-L", f"native={LIBRARY.parent}", "-C", f"link-arg=-Wl,-rpath,{LIBRARY.parent}")
    assert run("rustc", "--edition", "2021", C / "sum.rs", "-o", "sum_rs", *search) == ""
    assert run("sum_rs", "model.safetensors", "w") == f"w: 4194304 bytes, sum {VALUES.sum()}"
    assert run("sum_rs", "none", "w") == "Error: \"open 'none': No such file or directory\"\n"


@pytest.mark.slow
def test_r_sums_a_vector_of_a_file_and_copies_it_before_it_changes(run):
    link = (f"-I{ROOT / 'include'}", f"-L{LIBRARY.parent}", "-lonecopy", f"-Wl,-rpath,{LIBRARY.parent}")
    flags = run("R", "CMD", "config", "--cppflags").split()
    assert run("cc", "-shared", "-fPIC", *flags, C / "onecopy_r.c", "-o", "onecopy_r.so", *link) == ""
    said = f"x: 8388608 bytes, sum {VALUES.sum()}, changed {VALUES.sum() + 1}"
    assert run("Rscript", C / "sum.R", "model.safetensors", "x") == said
    assert "there is no array named 'y'" in run("Rscript", C / "sum.R", "model.safetensors", "y")
