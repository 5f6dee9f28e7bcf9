"""The identity of a function or value changes with what it does, and with nothing else; files have one too."""

import abc
import collections
import copyreg
import enum
import hashlib
import importlib
import io
import os
import re
import sys
import threading
import types
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from tests.support.generated_programs import CHOICES, PLAIN, WAYS, loaded, source_of

import onecopy as oc
from onecopy import _core
from onecopy.files.identity import Contents, FileIdentity, _now_of_files, contents_of, file_identity, identify_open
from onecopy.store import keys
from onecopy.store.function_identity import Reached
from onecopy.store.keys import digest_of, name_of


def closing(value: Any) -> Callable[[], Any]:
    return lambda: value


def module(**values: Any) -> types.ModuleType:
    """Return a module of the program."""
    made = types.ModuleType("settings")
    vars(made).update(values)
    return made


def rows(source: str, **scope: Any) -> Any:
    """Return the function `rows` of a module with this source."""
    made = module(**scope)
    exec(source, vars(made))
    return made.rows


class Slotted:
    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __reduce__(self) -> Any:
        return Slotted, (0,)

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return True


class Holding:
    """An object that does not pickle what it holds beside a lock."""

    def __init__(self, value: Any) -> None:
        self.parts = {"lock": threading.Lock(), "value": [value]}

    def __getstate__(self) -> dict[str, Any]:
        return {}


class Registered(Holding):
    """An object that `copyreg` pickles."""


class WithAttribute(np.ndarray[Any, Any]):
    pass


def with_attribute(value: Any) -> WithAttribute:
    made = np.zeros(2).view(WithAttribute)
    made.scale = value  # type: ignore[attr-defined]
    return made


copyreg.pickle(Registered, lambda _: (Registered, (0,)))


def first() -> int:
    return 1


def second() -> int:
    return 2


VALUES: list[tuple[Any, Any]] = [
    (("a", "b"), ("ab",)),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({1, 2}, {1, 3}),
    (collections.OrderedDict(a=1), {"a": 1}),
    (collections.deque([1], 1), collections.deque([1], 2)),
    (Fraction(1, 3), Fraction(2, 3)),
    (re.compile("a"), re.compile("a", re.I)),
    (str.upper, str.lower),
    (types.SimpleNamespace(n=1), types.SimpleNamespace(n=2)),
    (types.MappingProxyType({1: 2}), types.MappingProxyType({1: 3})),
    ({Slotted(1)}, {Slotted(2)}),
    (Holding(1), Holding(2)),
    (Registered(1), Registered(2)),
    (with_attribute(1), with_attribute(2)),
    (np.frompyfunc(first, 0, 1), np.frompyfunc(second, 0, 1)),
    (np.frompyfunc(first, 1, 1), np.frompyfunc(first, 2, 1)),
    (np.frompyfunc(first, 1, 1), np.frompyfunc(first, 1, 2)),
    (np.frompyfunc(first, 2, 1, identity=0), np.frompyfunc(first, 2, 1, identity=1)),
    (property(first, first), property(first, second)),
    (property(first, None, first), property(first, None, second)),
    (types.FunctionType.__code__, types.FunctionType.__defaults__),
    (TypeVar("T", bound=int), TypeVar("T", bound=str)),
    (TypeVar("T", int, str), TypeVar("T", int, bytes)),
    (TypeVar("T"), TypeVar("T", covariant=True)),
    (TypeVar("T"), TypeVar("T", contravariant=True)),
    (TypeVar("T"), TypeVar("U")),
    (Path("/a"), Path("/b")),
    (slice(1), slice(2)),
    (bytearray(b"a"), bytearray(b"b")),
    (memoryview(b"a"), memoryview(b"b")),
    (memoryview(b"a"), memoryview(b"a").cast("c")),
    (memoryview(b"ab").cast("B", (1, 2)), memoryview(b"ab").cast("B", (2, 1))),
    (np.float32(1), np.float64(1)),
    (np.arange(4), np.arange(4).reshape(2, 2)),
    (np.arange(4).reshape(2, 2), np.asfortranarray(np.arange(4).reshape(2, 2))),
    (np.arange(8)[::2], np.arange(8)[1::2]),
    (np.array([1, "a"], object), np.array([1, "b"], object)),
    (np.array(["2020"], "M8[D]"), np.array(["2021"], "M8[D]")),
]
"""Values that no program of the next tests but one has."""


@pytest.mark.parametrize("pair", VALUES, ids=range(len(VALUES)))
def test_values_that_differ_have_two_identities(pair):
    assert digest_of(pair[0], "") != digest_of(pair[1], "")
    assert [digest_of(value, "") for value in pair] == [digest_of(value, "") for value in pair]
    assert name_of(closing(pair[0])) != name_of(closing(pair[1]))
    if all(map(callable, pair)):
        assert name_of(pair[0]) != name_of(pair[1])


def nested(leaves):
    """Return all lists that have these leaves in this order, and none of their lists has one list alone."""
    if not leaves:
        return [[]]
    found = []
    for count in range(1, len(leaves) + 1):
        firsts = leaves[:1] if count == 1 else []
        firsts = firsts + nested(leaves[:count]) if count < len(leaves) else firsts
        found += [[first, *rest] for first in firsts for rest in nested(leaves[count:])]
    return found


@pytest.mark.parametrize("leaf", [1, Path("a"), first], ids=["a number", "a path", "a function"])
@pytest.mark.parametrize("kind", [list, tuple, lambda items: dict(enumerate(items))], ids=["list", "tuple", "dict"])
def test_the_same_leaves_in_other_containers_have_other_identities(leaf, kind):
    def made(value):
        return kind(map(made, value)) if isinstance(value, list) else value

    values = [made(value) for value in nested([leaf] * 4)]
    assert len({digest_of(value, "") for value in values}) == len(values) > 20


@pytest.mark.parametrize("way", range(len(WAYS)))
def test_a_name_changes_with_everything_that_changes_what_the_function_returns(way):
    plain = {"v": "1"} | {field: texts[0] for field, texts in CHOICES.items()}
    values = {"v": [*PLAIN, "(1, 'a')", "[1]", "{'a': 1}", "{1}", "frozenset({1})"]} | CHOICES
    for field in (field for field in plain if f"{{{field}}}" in "".join(WAYS[way])):
        results: dict[str, list[str]] = {}
        for text in values[field]:
            source = source_of([(way, plain | {field: text})])
            function = loaded(source)
            name = name_of(function)
            result = function()
            assert results.setdefault(name, result) == result
            assert name_of(loaded(source)) == name
        assert len(results) > 1


CODE = [("try: a()\n  finally: b", "a(); b"), ("yield 1", "return 1"), ("import json.decoder", "import json.encoder")]
CODE += [("return a in {1, 2}", "return a in {1, 3}"), ("return a.b", "return a.c")]


@pytest.mark.parametrize("pair", CODE)
def test_a_name_changes_with_the_code(pair):
    names = [name_of(rows(f"def rows(a=None, b=None):\n  {body}")) for body in pair]
    assert names[0] != names[1]


def test_a_name_changes_with_what_the_names_in_code_and_annotations_mean():
    one_of_two = "def rows():\n  try: return A\n  except NameError: return B"
    assert name_of(rows(one_of_two, A=1)) != name_of(rows(one_of_two, B=1))
    annotated = "from typing import List\ndef rows(a: List['Kind']): return 1"
    assert name_of(rows(annotated, Kind=int)) != name_of(rows(annotated, Kind=str))
    assert name_of(rows("import importlib\ndef rows(): return importlib.import_module, 5"))


def test_what_says_nothing_about_a_function_is_not_part_of_its_name():
    source = "def rows(a: {}):\n  return [x for x in a if x in LABELS]"
    plain = rows(source.format("int"), LABELS={"a", "b"})
    assert name_of(plain) == name_of(rows("\n\n" + source.format("int"), LABELS={"b", "a"}))
    assert name_of(plain) == name_of(rows(source.format("int"), LABELS={"a", "b"}, lock=threading.Lock(), x=7))
    assert name_of(plain) != name_of(rows(source.format("str"), LABELS={"a", "b"}))


class Flags(enum.Flag):
    A = 1
    B = 2


class Abstract(abc.ABC):
    @abc.abstractmethod
    def size(self) -> int: ...


class Sized(Abstract):
    def size(self) -> int:
        return 1


def test_using_an_object_does_not_change_its_identity():
    """Python itself notes things in classes: names of slots, combined flags, what `isinstance` found."""
    cached = rows("import functools\n@functools.cache\ndef rows(): return 1")
    generic = rows(
        "import functools\n@functools.singledispatch\ndef rows(x): pass\n@rows.register(int)\ndef _(x): pass"
    )
    each_of = np.vectorize(abs, otypes="i")
    values = [Slotted(1), Flags.A, Sized(), re.compile("a"), cached, generic, each_of]
    before = [digest_of(value, "") for value in values]
    assert Flags.A | Flags.B
    assert isinstance(values[2], Abstract)
    assert (cached(), generic(1), each_of([-1]).tolist()) == (1, None, [1])
    assert [digest_of(value, "") for value in values] == before


def test_equal_values_have_one_identity_however_many_objects_they_are():
    text, other = "some text", b"some text".decode()
    assert text is not other
    for made in (lambda word: word, lambda word: (1, word), Path, lambda word: (Path(word),), lambda _: 10**30):
        a, b = made(text), made(other)
        assert digest_of([a, a], "") == digest_of([a, b], "") == digest_of([b, a], "")


def test_functions_and_classes_that_reach_each_other_have_an_identity():
    source = (
        "def rows(n): return other(n - 1) + K().f()\ndef other(n): return rows(n) + N\nclass K:\n  def f(self): rows(N)"
    )
    assert name_of(rows(source, N=1)) == name_of(rows(source, N=1)) != name_of(rows(source, N=2))
    cycle: list[Any] = [1]
    cycle.append(cycle)
    assert digest_of(cycle, "") == digest_of(cycle, "") != digest_of([1, [1]], "")
    deep: Any = ()
    for _ in range(200):
        deep = (deep, deep)
    assert digest_of(deep, "") != digest_of((deep, deep), "")
    for _ in range(100_000):
        deep = (deep,)
    with pytest.raises(TypeError, match="the nesting of the value is too deep"):
        digest_of(deep, "the value")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: closing(threading.Lock()), "'value' of the function cannot have one: a lock "),
        (lambda: rows("def rows(): return g()\ndef g(): return L", L=threading.Lock()), "'L' of 'g' of the function "),
        (lambda: closing(io.TextIOWrapper(io.BytesIO()).read), "'value' of .* have one: a TextIOWrapper "),
        (lambda: closing({"a": [].__iter__, "b": (x for x in ())}), r"\['b'\] of 'value' of the function cannot "),
        (
            lambda: closing(Holding(io.TextIOWrapper(io.BytesIO()))),
            "'parts' of Holding of 'value' of the function cannot have one: a Te",
        ),
        (lambda: rows("def rows(): return m.L", m=module(L=threading.Lock())), "'L' of settings of the function "),
        (lambda: closing([Holding(1), threading.Lock()]), "'value' of the function cannot have one: a lock "),
    ],
)
def test_what_has_no_identity_is_named_with_the_way_to_it(make, message):
    with pytest.raises(TypeError, match=message):
        name_of(make())


def test_a_file_that_comes_to_rest_while_it_is_looked_at_is_still_asked_for_writers(tmp_path, monkeypatch):
    path = tmp_path / "x"
    path.write_bytes(b"x")
    recent = iter([True])  # 20 ms after the last write pass between two looks
    monkeypatch.setattr(FileIdentity, "is_recent", lambda _: next(recent, False))
    with path.open("r+b"):
        assert contents_of(path).digest


def test_a_write_while_writers_are_looked_for_is_waited_out(tmp_path, monkeypatch):
    path, ask, texts = tmp_path / "x", _core.why_not_identified, ["2"]
    path.write_text("1")

    def ask_and_write(descriptor):
        why = ask(descriptor)
        if texts:
            path.write_text(texts.pop())
        return why

    monkeypatch.setattr("onecopy._core.why_not_identified", ask_and_write)
    with path.open("rb") as file:
        found, why = identify_open(file.fileno())
    assert (why, found.is_recent(), found) == ("", False, file_identity(path))


BASE = [2]
LIMIT = 3


def helper(x: int, more: "int" = 4) -> list[int]:
    return [x, more, LIMIT, len("abc"), decorated()]


def calls_helper(n):
    return helper(n)


def reads_list():
    return BASE


def closing_over(value):
    def inner():
        return value

    def assign(new):
        nonlocal value
        value = new

    return inner, assign


decorated, _ = closing_over(1)
CHANGES = {
    "a global": lambda patch: patch.setitem(globals(), "LIMIT", 5),
    "a function": lambda patch: patch.setitem(globals(), "helper", lambda x: x),
    "code": lambda patch: patch.setattr(helper, "__code__", (lambda x, more: x + more).__code__),
    "defaults": lambda patch: patch.setattr(helper, "__defaults__", (5,)),
    "keyword defaults": lambda patch: patch.setattr(helper, "__kwdefaults__", {"more": 1}),
    "an annotation": lambda patch: patch.setitem(helper.__annotations__, "x", float),
    "one annotation more": lambda patch: patch.setitem(helper.__annotations__, "y", float),
    "other annotations": lambda patch: patch.setattr(helper, "__annotations__", {"x": int}),
    "what an annotation means": lambda patch: patch.setitem(globals(), "int", float),
    "an attribute": lambda patch: patch.setattr(helper, "limit", 1, raising=False),
    "the name": lambda patch: patch.setattr(helper, "__qualname__", "other"),
    "a name that was a built-in": lambda patch: patch.setitem(globals(), "len", sum),
    "a variable of a closure": lambda patch: patch.setattr(decorated.__closure__[0], "cell_contents", 5),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_function_has_another_name_after_each_change_of_what_it_reaches(monkeypatch, change):
    before = name_of(calls_helper)
    with monkeypatch.context() as patch:
        CHANGES[change](patch)
        assert name_of(calls_helper) != before
    assert name_of(calls_helper) == before


def test_a_function_is_hashed_again_only_where_something_may_have_changed(monkeypatch):
    inner, assign = closing_over(1)
    before = [name_of(function) for function in (calls_helper, inner, reads_list)]
    monkeypatch.setitem(globals(), "LIMIT", "x" * 20_000)
    name_of(calls_helper)
    assert "x" * 20_000 not in [each[2] for each in (keys._known[id(calls_helper)].reached or Reached()).names]
    monkeypatch.undo()
    names = [name_of(function) for function in (calls_helper, helper)]
    assert names[0] == before[0]
    hashed = []
    form = keys._form_of
    monkeypatch.setattr(keys, "_form_of", lambda value, where: hashed.append(value) or form(value, where))
    assert [name_of(function) for function in (calls_helper, helper)] == names
    assert not hashed
    assert id(inner) not in keys._known  # its cells are not kept in memory
    assign(2)
    assert name_of(inner) != before[1]
    assign([3])
    first = name_of(inner)
    inner()[0] = 4
    assert name_of(inner) != first
    BASE.append(5)
    after = name_of(reads_list)
    BASE.pop()
    assert after != before[2] == name_of(reads_list)


def test_arguments_and_how_they_are_passed_are_part_of_a_call():
    calls = [((), {}), ((1,), {}), ((), {"n": 1}), (((), {"n": 1}), {}), (((1,), {}), {}), ((1, {}), {}), ((True,), {})]
    assert len({name_of(calls_helper, call) for call in calls}) == len(calls)
    assert name_of(reads_list, ((BASE,), {})) != name_of(reads_list, (([2],), {}))  # it may ask which list it is


LAZY = """
import importlib
def __getattr__(name):
    if name != 'lazy': raise AttributeError(name)
    return importlib.import_module(f'.{name}', __name__)
def h():
    from . import first
    return first.N
"""


@pytest.mark.filterwarnings("ignore:can't resolve package:ImportWarning")
@pytest.mark.parametrize("missing", [[], ["__package__"], ["__package__", "__spec__"]])
def test_modules_of_the_program_that_a_function_imports_are_part_of_its_name(tmp_path, monkeypatch, missing):
    """Whether they were imported before or not, by whichever form of import."""
    package = tmp_path / "package_of_keys"
    (package / "inner").mkdir(parents=True)
    forms = {
        "a": "from . import first\n    return first.N",
        "b": "from .first import N\n    return N",
        "c": "from package_of_keys import first as x\n    return x.N",
        "d": "import package_of_keys.first as x, os.path, json.tool, wave\n    return x.N",
        "e": "from .inner.second import N as M\n    return M",
        "f": "import package_of_keys.inner.second\n    return package_of_keys.inner.second.N",
        "g": "return package_of_keys.lazy.N",
    }
    sources = {"functions": "import package_of_keys\n", "inner/__init__": "", "__init__": LAZY}
    sources["functions"] += "\n".join(f"def {name}():\n    {form}" for name, form in forms.items())
    for name in ("__init__", "functions", "inner/__init__", "first", "inner/second", "lazy"):
        (package / f"{name}.py").write_text(sources.get(name, "N = 1\n"))
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("", ".functions", ".first", ".inner", ".inner.second", ".lazy"):
        monkeypatch.delitem(sys.modules, f"package_of_keys{name}", raising=False)
    functions = importlib.import_module("package_of_keys.functions")
    for name in missing:
        monkeypatch.delitem(vars(functions), name)
    if missing:
        monkeypatch.delitem(vars(functions.package_of_keys), "__package__")
    for function in (*(getattr(functions, name) for name in forms), functions.package_of_keys.h):
        before = name_of(function)
        assert function() == 1
        assert name_of(function) == before
        with monkeypatch.context() as patch:
            for module in ("first", "inner.second", "lazy"):
                patch.setattr(importlib.import_module(f"package_of_keys.{module}"), "N", 2)
            assert function() == 2
            assert name_of(function) != before


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_removed", [False, True])  # many file systems use the number of the inode again
def test_a_key_changes_with_the_contents_though_size_and_times_are_the_same(tmp_path, is_removed):
    path = tmp_path / "file"
    read = oc.cached(inputs=[path], store=tmp_path / "store")(lambda: [path.read_text()])
    for text in ("old", "new"):
        if is_removed:
            path.unlink(missing_ok=True)
        path.write_text(text)
        os.utime(path, (1, 1))
        assert list(read()) == [text]


def test_a_file_with_a_writer_is_identified_by_all_of_its_bytes(tmp_path):
    path = tmp_path / "file"
    with path.open("wb"):
        for data in (b"", b"a", b"ab", b"bb", bytes(100_000)):
            path.write_bytes(data)
            found = contents_of(path)
            assert found.digest == hashlib.sha256(data).hexdigest()
            assert found.are_in(path)
            os.utime(path, (1, 1))
            assert found.are_in(path)
            path.write_bytes(b"x" + data[1:])
            assert not found.are_in(path)
    found = contents_of(path)
    assert found.are_in(path)
    path.touch()
    assert found.are_in(path) == bool(found.digest)  # which a busy machine computes, and a time alone does not change
    path.unlink()
    assert not found.are_in(path)


def test_a_key_changes_with_each_part_of_the_identity_of_a_file():
    found = FileIdentity(1, 2, 3, 4, 5)
    others = [found._replace(**{name: 6}) for name in found._fields]
    assert len({Contents(each).text for each in (found, *others)}) == 6


def test_a_file_that_is_not_the_expected_one_is_being_written(tmp_path):
    (tmp_path / "file").write_text("1")
    with (tmp_path / "file").open("rb") as file:
        found, _ = identify_open(file.fileno())
        assert identify_open(file.fileno(), expected=found) == (found, "")
        before = found._replace(changed=found.changed - 1)
        assert identify_open(file.fileno(), expected=before) == (found, "it is being written")


def test_no_write_leaves_a_time_that_is_before_now_and_each_changes_the_key(tmp_path):
    keys = set()
    for number in range(20):
        now = _now_of_files()
        (tmp_path / "file").write_text(f"{number:2}")
        assert (tmp_path / "file").stat().st_ctime_ns >= now
        keys.add(oc.file_key(tmp_path / "file"))
    assert len(keys) == 20


@pytest.mark.parametrize(
    ("changed", "settled"), [(7_000_000_000, 2_000_000_000), (7_000_000_001, 20_000_000), (7_500_000_000, 20_000_000)]
)
def test_a_file_system_that_dates_in_whole_seconds_is_given_two_of_them(monkeypatch, changed, settled):
    found = FileIdentity(1, 1, 1, 7_000_000, changed)  # programs can set the time of the last write
    for passed, is_recent in ((0, True), (settled - 1, True), (settled, False)):
        monkeypatch.setattr("onecopy.files.identity._now_of_files", lambda now=changed + passed: now)
        assert found.is_recent() == is_recent


def test_only_regular_files_have_a_key(tmp_path):
    with pytest.raises(IsADirectoryError, match="the files in it"):
        oc.file_key(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/null")):
        with pytest.raises(OSError, match="not a regular file"):
            oc.file_key(path)
