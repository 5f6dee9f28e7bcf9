"""Generates programs of several modules, installs them as users do, edits one thing, and compares keys with results.

    python -m tests.support.edited_programs FOLDER FIRST COUNT

prints how many programs were run, in which places, and which have the key of another result.
"""

import base64
import collections
import copyreg
import functools
import hashlib
import importlib
import json
import random
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from onecopy.store import function_identity, packages
from onecopy.store.keys import name_of

APP = {
    "app_of_test/__init__.py": "from app_of_test.main import rows\n",
    "app_of_test/helper.py": '''
import importlib, operator, copyreg, threading, functools
from typing import NamedTuple
def helper(): return deeper()
def deeper(x={default}): return [x, {helper}]
LIMIT = {limit}
class Base:
    """{doc}"""
class Apart:
    size = {attribute}
class First(Base):
    def f(self): return {method}
class Second(Base):
    only = {subclass}
class Kept:
    def __init__(self, x): self.x = x
    def __getstate__(self): return {{}}
class Locked:
    def __init__(self, x): self.parts = {{"lock": threading.Lock(), "x": [x]}}
    def __reduce__(self): return Locked, (0,)
class Registered:
    def __init__(self, x): self.x = x
copyreg.pickle(Registered, lambda value: (Registered, (0,)))
kept, locked, registered = Kept({kept}), Locked({locked}), Registered({registered})
class Inner(NamedTuple):
    x: {inner}
class Outer:
    inner: "Inner"
    x: {annotation}
''',
    "app_of_test/lazy.py": """
def __getattr__(name):
    if name == 'DYNAMIC': return globals()['_' + name]
    raise AttributeError(name)
_DYNAMIC = {dynamic}
""",
    "app_of_test/plugin.py": "X = {plugin}\n",
    "app_of_test/sub/__init__.py": "",
    "app_of_test/sub/more.py": "def more(): return {more}\n",
    "app_of_test/main.py": """
import functools, importlib, operator, typing
import onecopy as oc
from app_of_test import helper, lazy
from app_of_test.helper import First, kept, locked, registered
import lib_of_test
def scaled(factor):
    def decorate(function):
        @functools.wraps(function)
        def inner(*a): return [factor, function(*a)]
        return inner
    return decorate
@scaled({closure})
def wrapped(): return {wrapped}
@functools.cache
def remembered(): return {remembered}
def annotated(x: {parameter}): pass
USED = functools.partial(max, {partial})
@oc.cached
def rows(argument={argument}):
    from app_of_test.sub.more import more
    from lib_of_test.inner import late
    size_of, names = operator.attrgetter("Apart.size"), typing.get_type_hints
    return [
        argument, helper.helper(), helper.LIMIT, helper.Base.__doc__, First().f(), size_of(helper), lazy.DYNAMIC,
        kept.x, locked.parts["x"], registered.x, str(names(helper.Outer)), str(names(names(helper.Outer)["inner"])),
        importlib.import_module("app_of_test.plugin").X, more(), wrapped(), remembered(), USED(0),
        str(annotated.__annotations__), lib_of_test.early(), late(),
        [kind.only for kind in helper.Base.__subclasses__() if hasattr(kind, "only")],
    ]
""",
}
LIB = {
    "lib_of_test/__init__.py": "def early(): return {early}\n",
    "lib_of_test/inner.py": "def late(): return {late}\n",
}
CHOICES = {name: ["int", "str", "list[int]", "'int'"] for name in ("annotation", "inner", "parameter")}
CHOICES |= {"doc": ["one", "two", "three"], "partial": ["1", "2", "3"]}
VALUES = ["0", "1", "2", "'a'", "[1]", "(1, 'b')", "None", "1.5"]
FIELDS = sorted(set(re.findall(r"{([a-z]\w*)}", "".join([*APP.values(), *LIB.values()]))))
PLACES = ["source", "editable", "copied", "installed", "installed", "installed"]

Program = dict[str, str]
"""Texts of the fields, and the versions of the two distributions."""


def edited(before: Program, chance: random.Random, *fields: str) -> Program:
    """Return a program with other texts of some fields; every third time with another version, as careful people do."""
    texts = {field: [text for text in CHOICES.get(field, VALUES) if text != before.get(field)] for field in fields}
    which = chance.choice(["version", "lib_version", "", "", "", ""])
    after = before | {field: chance.choice(texts[field]) for field in fields}
    return after | ({which: f"{chance.randrange(9)}.{chance.randrange(9)}"} if which else {})


def write(folder: Path, files: dict[str, str], texts: Program) -> list[Path]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.format(**texts))
    return [folder / name for name in files]


def install(site: Path, paths: list[Path], name: str, version: str, *, editable: bool = False) -> None:
    """Write the metadata of a distribution as pip does."""
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "INSTALLER").write_text("pip\n")
    if editable:
        (folder / "direct_url.json").write_text('{"dir_info": {"editable": true}, "url": "file:///src"}')
    lines = [f"{folder.name}/RECORD,,\n"]
    for path in [*paths, folder / "METADATA", folder / "INSTALLER"]:
        digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode().rstrip("=")
        if path.is_relative_to(site):
            lines.insert(0, f"{path.relative_to(site)},sha256={digest},{path.stat().st_size}")
    (folder / "RECORD").write_text("\n".join(lines))


def lay_out(folder: Path, place: str, texts: Program, *, reinstall: bool) -> list[str]:
    """Write a program to its place, and return what is added to `sys.path`."""
    site, source = folder / "site-packages", folder / "source"
    if reinstall:
        shutil.rmtree(folder, ignore_errors=True)
        install(site, write(site, LIB, texts), "Lib.Of-Test", texts["lib_version"])
    paths = write(source if place in ("source", "editable") else site, APP, texts)
    if place in ("installed", "editable") and reinstall:
        install(site, paths, "someones_app", texts["version"], editable=place == "editable")
    return [str(source), str(site)]


def run(path: list[str]) -> tuple[str, str]:
    """Return the key of the function and its result, as a process has them that starts now."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("app_of_test", "lib_of_test")]:
        del sys.modules[name]
    for cache in vars(packages).values():
        getattr(cache, "cache_clear", bool)()
    function_identity._codes.clear()
    for kind in [kind for kind in copyreg.dispatch_table if kind.__module__ == "app_of_test.helper"]:
        del copyreg.dispatch_table[kind]
    before = sys.path[:]
    sys.path[:0] = path
    try:
        importlib.invalidate_caches()
        function: Any = importlib.import_module("app_of_test").rows.__wrapped__
        key, result = name_of(functools.partial(function)), repr(function())
        assert name_of(functools.partial(function)) == key, f"the key of {path} changes when the function is called"
        return key, result
    finally:
        sys.path[:] = before


def compared(folder: Path, seeds: range) -> dict[str, Any]:
    """Compare the programs of some seeds; in each, some edits, and the first program again."""
    counts, stale, missed = collections.Counter[str](), list[Any](), list[Any]()
    sys.dont_write_bytecode = True
    for seed in seeds:
        chance = random.Random(seed)
        place, at, results = PLACES[seed % len(PLACES)], folder / str(seed), dict[str, str]()
        given = first = edited({}, chance, *FIELDS) | {"version": "1.0", "lib_version": "0.1"}
        for step in range(5):
            field = FIELDS[(3 * (seed // 6 * 3 + seed % 3) + step) % len(FIELDS)]  # in 24 seeds all, installed or not
            after = first if step in (0, 4) else edited(given, chance, field)
            changed = {name for name in after if after[name] != given[name]}
            reinstall = step in (0, 4) or not changed.isdisjoint({"version", "lib_version", "early", "late"})
            reinstall |= place == "installed" and chance.random() < 0.5  # else the installed files are edited in place
            key, result = run(lay_out(at, place, after, reinstall=reinstall))
            given, counts[place] = after, counts[place] + 1
            if results.setdefault(key, result) != result:
                stale.append({"seed": seed, "place": place, "changed": sorted(changed)})
        if key != next(iter(results)):
            missed.append({"seed": seed, "place": place})
        shutil.rmtree(at)
    return {"run": counts.total(), "places": counts, "stale": stale, "missed": missed}


if __name__ == "__main__":
    begin, count = map(int, sys.argv[2:4])
    print(json.dumps(compared(Path(sys.argv[1]), range(begin, begin + count))))
