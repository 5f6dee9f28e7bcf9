"""A package is identified by its version and its files, a compiled module of the program by its contents."""

import base64
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onecopy.store import packages
from onecopy.store.keys import name_of
from onecopy.store.packages import package_of, requires_onecopy, version_of

Build = Callable[[str], None]

LIBRARY = "def g(): return {}\n"
APPLICATION = "import onecopy as oc\ndef helper(): return {}\n@oc.cached\ndef rows(): return [helper()]\n"
PROGRAMS = {
    "a global": "import module_of_test as m\ndef rows(): return [m.g()]",
    "a function": "from module_of_test import g\ndef rows(): return [g()]",
    "an import inside": "def rows():\n  import module_of_test as m\n  return [m.g()]",
    "a part imported inside": "def rows():\n  from module_of_test import g\n  return [g()]",
}


def wheel(folder: Path, source: str, version: str, *, hashed: bool) -> Path:
    """Write a wheel whose distribution has another name than its module; pip keeps the checksums that it lists."""
    path = folder / f"Dist_Of_Test-{version}-py3-none-any.whl"
    about = f"Dist_Of_Test-{version}.dist-info"
    digest = base64.urlsafe_b64encode(hashlib.sha256(source.encode()).digest()).decode().rstrip("=")
    line = f"module_of_test.py,sha256={digest},{len(source)}" if hashed else "module_of_test.py,,"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("module_of_test.py", source)
        file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: Dist-Of.Test\nVersion: {version}\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", f"{line}\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n")
    return path


def installed(site: Path, source: str = "", *, more: str = "", record: str = "") -> str:
    """Extract a wheel as pip does, with further lines of metadata; return the path of its module."""
    site.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(wheel(site.parent, source, "1.0", hashed=True)) as file:
        file.extractall(site)
    for name, text in (("METADATA", more), ("RECORD", record)):
        with (site / "Dist_Of_Test-1.0.dist-info" / name).open("a") as file:
            file.write(text)
    return str(site / "module_of_test.py")


def run(source: str, *folders: Path) -> dict[str, Any]:
    """Return the key of `rows` of a program in a process of its own, and its result."""
    ending = (
        "\nimport json, onecopy.store.keys as k\nrows = getattr(rows, '__wrapped__', rows)"
        "\nprint(json.dumps({'key': k.name_of(rows), 'result': rows(), 'after': k.name_of(rows)}))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", source + ending]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["key"] == found["after"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("installed", "hashed"),
    [(LIBRARY, True), (LIBRARY, False), (APPLICATION, True)],
    ids=["library", "library without checksums", "application"],
)
def test_a_package_that_pip_has_installed_again_is_another_one_whatever_its_version(tmp_path, installed, hashed):
    site = tmp_path / "site-packages"
    programs = list(PROGRAMS.values()) if installed is LIBRARY else ["from module_of_test import rows"]
    seen = [set[str]() for _ in programs]
    for number, version in [("1", "1.0"), ("2", "1.0"), ("3", "2.0")]:
        made = wheel(tmp_path, installed.format(number), version, hashed=hashed)
        command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--no-compile", "--quiet"]
        subprocess.run([*command, "--upgrade", "--target", site, made], check=True)
        for keys, program in zip(seen, programs, strict=True):
            found = run(program, site)
            assert found["result"] == [int(number)]
            keys.add(found["key"])
    assert [len(keys) for keys in seen] == [3] * len(programs)


def test_a_package_is_the_same_in_each_environment_whose_python_its_scripts_name(tmp_path):
    found = set()
    for environment in ("first", "second"):
        script = hashlib.sha256(f"#!{tmp_path / environment}/bin/python".encode()).hexdigest()
        line = f"../../../bin/tool,sha256={script},200\n"  # as pip lists the scripts that it has made
        path = installed(tmp_path / environment / "site-packages", LIBRARY, record=line)
        found.add(package_of("module_of_test", path))
    assert len(found) == 1


REQUIREMENTS = ["onecopy", "Onecopy>=0.3", "onecopy[torch] (>=0.3)", "onecopy ; python_version > '3'", "onecopy-tools"]
REQUIREMENTS += ["onecopy; extra == 'fast'", "onecopy>=0.3 ; extra=='fast'", "onecopy.tools>=1", "other; extra == 'x'"]
REQUIREMENTS += ["onecopy-core>=0.2", "Onecopy_Records[arrow]", "onecopy-core-tools", "onecopy.images ; extra == 'x'"]


@pytest.mark.parametrize("text", REQUIREMENTS)
def test_a_package_belongs_to_the_program_if_it_requires_onecopy_without_an_extra(tmp_path, text):
    found = pytest.importorskip("packaging.requirements").Requirement(text)
    name = re.sub("[-_.]+", "-", found.name).lower()
    is_ours = name in {"onecopy", "onecopy-core", "onecopy-records"}
    required = is_ours and (found.marker is None or found.marker.evaluate({"extra": ""}))
    path = installed(tmp_path / "site-packages", more=f"Requires-Dist: {text}\n")
    assert requires_onecopy(path) == required


def test_each_installed_package_is_identified_by_the_distributions_that_provide_it():
    """importlib.metadata, which reads the metadata of all distributions, says which they are."""
    compared = 0
    for top, names in importlib.metadata.packages_distributions().items():
        spec = importlib.util.find_spec(top) if top.isidentifier() and "onecopy" not in top else None
        if spec is not None and spec.origin is not None and "site-packages" in spec.origin:
            found = [each.rpartition(" ")[0] for each in str(package_of(top, spec.origin)).split(", ")]
            expected = {f"{re.sub('[-_.]+', '_', each)}-{importlib.metadata.version(each)}".lower() for each in names}
            parts = [each.rpartition("-") for each in found]
            assert {f"{re.sub('[-_.]+', '_', name)}-{version}".lower() for name, _, version in parts} <= expected
            assert set(str(version_of(spec.origin)).split(", ")) == {version for _, _, version in parts}
            compared += 1
    assert compared > 20
    assert [version_of(file) for file in (__file__, os.__file__, None)] == [None] * 3


@pytest.mark.parametrize("requires", [True, False])
def test_code_beside_a_function_is_followed_if_its_package_requires_onecopy(tmp_path, requires):
    path = installed(tmp_path / "site-packages", more="Requires-Dist: onecopy\n" if requires else "")
    keys = set()
    for number in "12":  # edited in place: the list of installed files is the same
        Path(path).write_text(f"{LIBRARY.format(number)}\ndef rows(): return [g()]\n")
        keys.add(run("from module_of_test import rows", Path(path).parent)["key"])
    assert len(keys) == 1 + requires


def test_a_package_that_is_installed_for_editing_belongs_to_the_program(tmp_path):
    found = []
    for about in ("{}", '{"url": "file:///x", "dir_info": {"editable": true}}'):
        site = tmp_path / str(len(found)) / "site-packages"
        path = installed(site, LIBRARY)
        (site / "Dist_Of_Test-1.0.dist-info" / "direct_url.json").write_text(about)
        found.append(package_of("module_of_test", path) is None)
    assert found == [False, True]


def compiled(folder: Path, name: str, source: str) -> Build:
    """Return a function that compiles a source in which V is a number, and replaces the library."""

    def build(number: str) -> None:
        (folder / f"{name}.c").write_text(source.replace("NAME", name))
        flags = ["-shared", "-fPIC", f"-DV={number}", "-I", sysconfig.get_paths()["include"]]
        subprocess.run(["cc", *flags, folder / f"{name}.c", "-o", folder / "new"], check=True)
        (folder / "new").replace(folder / f"{name}.so")

    return build


EXTENSION = """
#include <Python.h>
static PyObject* g(PyObject* self, PyObject* args) { return PyLong_FromLong(V); }
static PyMethodDef methods[] = {{"g", g, METH_NOARGS, 0}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "NAME", 0, -1, methods};
PyMODINIT_FUNC PyInit_NAME(void) { return PyModule_Create(&module); }
"""


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
def test_a_compiled_module_of_the_program_is_identified_by_its_contents(tmp_path, program):
    build = compiled(tmp_path, "module_of_test", EXTENSION)
    found = [build(number) or run(program, tmp_path) for number in ("1", "2", "1")]
    assert [each["result"] for each in found] == [[1], [2], [1]]
    assert found[0]["key"] == found[2]["key"] != found[1]["key"]


def test_a_library_that_ctypes_loads_is_identified_by_its_contents_and_its_declared_types(tmp_path):
    build = compiled(tmp_path, "library", "int g(void) { return V; }\n")
    program = f"import ctypes\nL = ctypes.CDLL({str(tmp_path / 'library.so')!r})\ndef rows(): return [L.g()]"
    found = [build(number) or run(program) for number in ("1", "2", "2")]
    found.append(run(f"{program}\nL.g.restype = ctypes.c_bool"))
    assert [each["result"] for each in found] == [[1], [2], [2], [True]]
    assert [found[0]["key"] == each["key"] for each in found] == [True, False, False, False]
    assert found[1]["key"] == found[2]["key"] != found[3]["key"]
    run("import ctypes\nL = ctypes.CDLL('libc.so.6')\ndef rows(): return [L.abs(-1)]")


def test_a_module_of_the_program_in_a_namespace_of_an_installed_one_is_followed(tmp_path):
    site, own = tmp_path / "site-packages", tmp_path / "own"
    (site / "company_of_test/a_lib").mkdir(parents=True)
    (site / "company_of_test/a_lib/__init__.py").write_text("raise SystemExit('imported for a key')")
    (own / "company_of_test").mkdir(parents=True)
    keys = set()
    for number in "12":
        (own / "company_of_test/app.py").write_text(LIBRARY.format(number))
        program = (
            "def rows():\n  import company_of_test.app as a\n  if not a: import company_of_test.a_lib\n  return [a.g()]"
        )
        keys.add(run(program, site, own)["key"])
    assert len(keys) == 2


class ByName:
    """An object that pickles as a name, which is that of another object."""

    def __reduce__(self) -> str:
        return "ByName"


def test_a_name_in_a_pickle_identifies_the_object_that_has_it_alone():
    value = ByName()
    with pytest.raises(
        TypeError, match="'value' of the function cannot have one: a ByName is pickled as 'ByName', the name of another"
    ):
        name_of(lambda: value)
    functions = [np.frompyfunc(function, 1, 1) for function in (lambda x: x + 1, lambda x: x + 2)]
    keys = {name_of(functools.partial(function)) for function in functions}
    assert len(keys | {name_of(np.add), name_of(np.subtract)}) == 4


def test_moving_or_replacing_a_file_of_code_changes_the_identity_of_its_folder(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "module.py").write_text("x = 1")
    before = packages.contents_of(str(tmp_path))
    (tmp_path / "a" / "module.py").rename(tmp_path / "b" / "module.py")
    assert packages.contents_of(str(tmp_path)) != before
    path = tmp_path / "alone.pyc"  # installed as compiled Python alone
    found = [path.write_bytes(data) and packages.contents_of(str(path)) for data in (b"one", b"two")]
    assert found[0] != found[1]
