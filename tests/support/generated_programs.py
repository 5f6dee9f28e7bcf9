"""Generates programs whose function `rows` reaches values in every way that Python has, and changes one thing in each.

    python -m tests.support.generated_programs STORE FIRST COUNT

calls `rows` of each program as a cached function and as it is, and prints how many results were built and which differ.
"""

import gc
import json
import random
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onecopy as oc

PRELUDE = '''
import collections, contextlib, dataclasses, decimal, enum, functools, operator, re
import settings_of_program

def show(x):
    """Return text that differs for values that differ, in every process the same."""
    if isinstance(x, (set, frozenset)):
        return f"{type(x).__name__} {sorted(map(show, x))}"
    if isinstance(x, dict):
        return f"{type(x).__name__} {[(show(k), show(v)) for k, v in x.items()]}"
    if isinstance(x, (list, tuple)):
        return f"{type(x).__name__} {[show(v) for v in x]}"
    if isinstance(x, int) and not isinstance(x, enum.Enum):
        return f"{type(x).__name__} {int.__index__(x):x}"
    return show(x()) if callable(x) else f"{type(x).__name__} {str(x)!r}"

class Word(str):
    def __repr__(self):
        return "Word"

class Number(int):
    pass

class Items(list):
    pass

class Held:
    def __init__(self, x):
        self.x = x
    def get(self):
        return self.x

class Silent(Held):
    def __reduce__(self):
        return Silent, (0,)

class Slots:
    __slots__ = ("x",)
    def __init__(self, x):
        self.x = x

def closing(x):
    def inner():
        return x
    return inner

def nested(x):
    def outer():
        return [closing(x)() for _ in "a"]
    return outer

def named(x):
    def decorate(function):
        @functools.wraps(function)
        def wrapper():
            return [x, function()]
        return wrapper
    return decorate

def one():
    return 1

def two():
    return 2
'''

WAYS: list[tuple[str, str]] = [
    ("", "show({v})"),
    ("G{i} = {v}", "show(G{i})"),
    ("G{i} = {v}\ndef h{i}(): return G{i}", "show(h{i})"),
    ("G{i} = {v}\ndef a{i}(): return b{i}(3)\ndef b{i}(n): return a{i}() if n > 9 else [G{i}, n]", "show(a{i})"),
    ("def h{i}(): return {v}\ndef k{i}(): return [h{i}() for _ in 'ab']", "show(k{i})"),
    ("def d{i}(x={v}): return x", "show(d{i})"),
    ("def d{i}(*, x={v}, y=0): return [x, y]", "show(d{i})"),
    ("c{i} = closing({v})", "show(c{i})"),
    ("c{i} = nested({v})", "show(c{i})"),
    ("p{i} = functools.partial(closing, {v})", "show(p{i}())"),
    ("p{i} = functools.partial(closing, x={v})", "show(p{i}())"),
    ("b{i} = Held({v}).get", "show(b{i})"),
    ("b{i} = Silent({v})", "show(b{i}.get)"),
    ("b{i} = Slots({v})", "show(b{i}.x)"),
    ("class K{i}: size = [{v}]", "show(K{i}.size)"),
    ("class A{i}: size = [{v}]\nclass K{i}(A{i}): pass", "show(K{i}().size)"),
    ("class K{i}:\n  def f(self): return {v}", "show(K{i}().f)"),
    ("class K{i}:\n  @property\n  def f(self): return {v}", "show(K{i}().f)"),
    ("class K{i}:\n  @classmethod\n  def f(cls): return {v}", "show(K{i}.f)"),
    ("class K{i}:\n  @staticmethod\n  def f(x={v}): return x", "show(K{i}.f)"),
    ("class K{i}:\n  @functools.cached_property\n  def f(self): return {v}", "show(K{i}().f)"),
    ("class M{i}(type):\n  def f(cls): return {v}\nclass K{i}(metaclass=M{i}): pass", "show(K{i}.f)"),
    ("g{i} = dict(k={v}).get", "show(g{i}('k'))"),
    ("g{i} = [[{v}], 1].__getitem__", "show(g{i}(0))"),
    ("g{i} = operator.itemgetter({n})", "show(g{i}((1, 2, 3)))"),
    ("r{i} = re.compile({s})", "show(r{i}.pattern)"),
    ("r{i} = re.compile({s}).fullmatch", "show(r{i}('a') is None)"),
    ("j{i} = {s}.join", "show(j{i}(['x', 'y']))"),
    ("@functools.cache\ndef f{i}(): return {v}", "show(f{i})"),
    ("@named({v})\ndef f{i}(): return 1", "show(f{i})"),
    ("w{i} = functools.wraps(re.escape)(lambda: {v})", "show(w{i})"),
    ("G{i} = {v}\ndef h{i}():\n  class C:\n    x = G{i}\n  return C", "show(h{i}().x)"),
    (
        "@dataclasses.dataclass\nclass D{i}:\n  x: object = dataclasses.field(default_factory=lambda: {v})",
        "show(D{i}().x)",
    ),
    ("@dataclasses.dataclass\nclass D{i}:\n  x: object\nd{i} = D{i}({v})", "show(d{i}.x)"),
    ("E{i} = enum.Enum('E{i}', dict(A=[{v}]))", "show(E{i}.A.value)"),
    ("class E{i}(enum.IntFlag):\n  A = {n}\n  B = 8", "show(E{i}.A | E{i}.B)"),
    ("N{i} = collections.namedtuple('N{i}', 'x y{n}')", "show(N{i}(1, 2)._fields)"),
    ("N{i} = collections.defaultdict(list, k={v})", "show(N{i})"),
    ("N{i} = collections.deque([{v}], maxlen=3)", "show(list(N{i}))"),
    ("def f{i}(): return f{i}.x\nf{i}.x = {v}", "show(f{i})"),
    ("F{i} = [one, two, {f}]", "show([f() for f in F{i}])"),
    ("F{i} = dict(f={f})", "show(F{i}['f'])"),
    ("L{i} = lambda x={v}: x", "show(L{i})"),
    ("def y{i}():\n  yield {v}", "show(list(y{i}()))"),
    ("@contextlib.contextmanager\ndef y{i}():\n  yield {v}", "[show(x) for x in [y{i}().__enter__()]][0]"),
    ("@functools.singledispatch\ndef s{i}(x): return 0\n@s{i}.register(int)\ndef _(x): return {v}", "show(s{i}(1))"),
    ("def l{i}():\n  {name} = {n}\n  return locals()", "show(l{i})"),
    ("def l{i}(a=5, b=3): return a {op} b", "show(l{i})"),
    ("def l{i}():\n  try:\n    return [][{n}]\n  except {error}:\n    return 1", "show(l{i})"),
    ("settings_of_program.A{i} = {v}", "show(settings_of_program.A{i})"),
    ("settings_of_program.A{i} = {v}\ndef m{i}():\n  import settings_of_program as s\n  return s.A{i}", "show(m{i})"),
    (
        "settings_of_program.A{i} = {v}\ndef m{i}():\n  from settings_of_program import A{i}\n  return A{i}",
        "show(m{i})",
    ),
    ("settings_of_program.A{i} = {v}\nM{i} = [settings_of_program]", "show(getattr(M{i}[0], 'A{i}'))"),
    ("W{i} = Word({s})", "show(W{i})"),
    ("W{i} = Number({n})", "show(W{i})"),
    ("W{i} = Items([{v}])\nW{i}.more = {n}", "show([W{i}, W{i}.more])"),
    ("W{i} = decimal.Decimal('{n}.0{zero}')", "show(W{i})"),
    (
        "W{i} = [[]] * 2 if {n} else [[], []]",
        "show([x.append(1) or len(W{i}[0]) for x in W{i}][-1]) + str([x.pop() for x in W{i}])",
    ),
]
"""A definition, and an expression that shows what it has."""

WORDS = r"""
0 1 2 True False None 1.0 -0.0 0.0 1e300 'a' 'b' b'a' '' '\ud800' ... 1j 10**5000 10**5000+1 -1 255 256 'ab'
float('nan') one two Word('a') range(3)
"""
PLAIN = WORDS.split()
CHOICES: dict[str, list[str]] = {
    "n": ["0", "1", "2"],
    "s": ["'a'", "'b'", "'ab'", "'.'"],
    "f": ["one", "two", "Held(1).get", "Held(2).get", "closing(one)"],
    "op": ["+", "-", "*", "//", "<", ">", "|"],
    "name": ["x", "y", "z"],
    "error": ["IndexError", "LookupError", "(IndexError, KeyError)"],
    "zero": ["", "0"],
}

_PRELUDE = compile(PRELUDE, "program.py", "exec")

Program = list[tuple[int, dict[str, str]]]
"""Numbers of `WAYS` and the texts of their fields."""


def value(chance: random.Random, depth: int = 0) -> str:
    kind = chance.randrange(12) if depth < 3 else 0
    if kind < 6:
        return chance.choice(PLAIN)
    items = [value(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind < 8:
        return f"[{', '.join(items)}]"
    if kind < 10:
        return f"({''.join(f'{item}, ' for item in items)})"
    if kind == 10:
        return "{" + ", ".join(f"{chance.choice(PLAIN)}: {item}" for item in items) + "}"
    return f"{chance.choice(['set', 'frozenset'])}([{', '.join(chance.choice(PLAIN) for _ in items)}])"


def program(chance: random.Random) -> Program:
    return [
        (chance.randrange(len(WAYS)), {"v": value(chance)} | {name: chance.choice(CHOICES[name]) for name in CHOICES})
        for _ in range(chance.randrange(1, 7))
    ]


def changed(before: Program, chance: random.Random) -> Program:
    after = [(way, dict(fields)) for way, fields in before]
    at = chance.randrange(len(after))
    way, fields = after[at]
    change = chance.randrange(10)
    if change == 0:
        after[at] = chance.randrange(len(WAYS)), fields
    elif change == 1:
        chance.shuffle(after)
    else:
        used = [name for name in ("v", *CHOICES) if f"{{{name}}}" in "".join(WAYS[way])]
        name = chance.choice(used or ["v"])
        fields[name] = value(chance) if name == "v" else chance.choice(CHOICES[name])
    return after


def source_of(given: Program) -> str:
    definitions, shown = list[str](), list[str]()
    for number, (way, fields) in enumerate(given):
        for text, into in zip(WAYS[way], (definitions, shown), strict=True):
            for name, field in (("i", str(number)), *fields.items()):
                text = text.replace(f"{{{name}}}", field)  # noqa: PLW2901
            into.append(text)
    return "\n".join([*definitions, f"def rows():\n  return [{', '.join(shown)}]\n"])


def loaded(source: str) -> Callable[[], list[str]]:
    """Return the function `rows` of a program that was started just now."""
    modules = types.ModuleType("program"), types.ModuleType("settings_of_program")
    sys.modules |= {module.__name__: module for module in modules}
    exec(_PRELUDE, vars(modules[0]))
    exec(compile(source, "program.py", "exec"), vars(modules[0]))
    rows: Callable[[], list[str]] = modules[0].rows
    return rows


def programs(seed: int) -> Iterator[str]:
    """Yield the sources of a program, of changed ones, and of the first again."""
    chance = random.Random(seed)
    first = given = program(chance)
    yield source_of(first)
    for _ in range(chance.randrange(1, 3)):
        given = changed(given, chance)
        yield source_of(given)
    yield source_of(first)


def compared(store: Path, seeds: range) -> dict[str, Any]:
    """Call each program cached and as it is."""
    folder = oc.Store(store, durable=False)
    gc.freeze()  # each build collects garbage
    called, built, wrong = 0, 0, list[Any]()
    for seed in seeds:
        for source in programs(seed):
            expected = loaded(source)()
            with oc.cached(store=folder)(loaded(source))() as rows:
                called, built = called + 1, built + rows.report.built
                if list(rows) != expected:
                    wrong.append({"seed": seed, "source": source, "cached": list(rows)})
    return {"called": called, "built": built, "wrong": wrong}


if __name__ == "__main__":
    first, count = map(int, sys.argv[2:4])
    print(json.dumps(compared(Path(sys.argv[1]), range(first, first + count))))
