"""The examples of the C interface, built with the library beside the extension: each gives the sum that numpy gives."""

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
LINK = [f"-I{ROOT / 'include'}", f"-L{LIBRARY.parent}", "-lonecopy", f"-Wl,-rpath,{LIBRARY.parent}"]
VALUES = np.arange(1 << 20)
SAID = f"w: 4194304 bytes, sum {VALUES.sum()}"


# rustup keeps its compilers in the home folder, which tests do not have.
HOME = {**os.environ, "HOME": pwd.getpwuid(os.getuid()).pw_dir}


def run(folder, *command):
    done = subprocess.run(command, cwd=folder, env=HOME, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def require(*programs):
    for program in programs:
        if not shutil.which(program):
            pytest.skip(f"there is no {program} here")
    if not LIBRARY.exists():
        pytest.skip("libonecopy.so is not in build/python: make module-tests")


@pytest.fixture
def folder(tmp_path):
    oc.save(tmp_path / "model.safetensors", {"w": VALUES.astype(np.float32), "x": VALUES.astype(np.float64)})
    return tmp_path


@pytest.mark.slow
def test_rust_sums_a_slice_of_a_file_and_gets_errors_as_results(folder):
    require("rustc")
    search = ["-L", f"native={LIBRARY.parent}", "-C", f"link-arg=-Wl,-rpath,{LIBRARY.parent}"]
    run(folder, "rustc", "--edition", "2021", C / "sum.rs", "-o", "sum", *search)
    assert run(folder, "./sum", "model.safetensors", "w").strip() == SAID
    failed = subprocess.run(["./sum", "none", "w"], cwd=folder, capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stderr) == (1, "Error: \"open 'none': No such file or directory\"\n")


@pytest.mark.slow
def test_r_sums_a_vector_of_a_file_and_copies_it_before_it_changes(folder):
    require("R", "Rscript", "cc")
    flags = run(folder, "R", "CMD", "config", "--cppflags").split()
    run(folder, "cc", "-shared", "-fPIC", *flags, C / "onecopy_r.c", "-o", "onecopy_r.so", *LINK)
    expected = f"x: 8388608 bytes, sum {VALUES.sum()}, changed {VALUES.sum() + 1}"
    assert run(folder, "Rscript", C / "sum.R", "model.safetensors", "x").strip() == expected
    assert oc.open(folder / "model.safetensors")["x"][0] == 0


@pytest.mark.slow
def test_c_and_cpp_programs_link_with_the_header_alone(folder):
    require("cc", "c++")
    run(folder, "cc", "-std=c11", "-Wall", "-Werror", C / "sum.c", "-o", "sum", *LINK)
    assert run(folder, "./sum", "model.safetensors", "w").startswith("w: 4194304 bytes, sum 5.49755e+11\nwarm: ")
    (folder / "page.cpp").write_text("#include <onecopy/onecopy.h>\nint main() { return *onecopy_version() == 0; }\n")
    run(folder, "c++", "-std=c++98", "page.cpp", "-o", "page", *LINK)
    run(folder, "./page")
