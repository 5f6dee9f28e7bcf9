"""Ten calls that users make often, each timed in this process: tools/micro_cases.py FOLDER [CASE ...].

Prints a JSON object: microseconds of one call by case, the least of several repetitions. FOLDER keeps the data between
processes; the first one creates it. Only names that all versions have are used: tools/compare_commits.py runs this
file with the package of two commits.
"""

import json
import sys
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MANY, ROWS, REPEATS, LEAST_S = 20_000, 10_000, 8, 0.02


def first_open(folder: Path) -> float:
    """Return the seconds to import onecopy after numpy, open a file and read a value."""
    import numpy  # noqa: F401, ICN001 - peers import it too

    begin = time.perf_counter()
    import onecopy as oc

    with oc.open(folder / "few.safetensors") as file:
        float(file["a"][0])
    return time.perf_counter() - begin


def make(folder: Path) -> None:
    """Write the data of all cases."""
    import numpy as np

    import onecopy as oc

    folder.mkdir(parents=True)
    oc.save(folder / "few.safetensors", {"a": np.arange(1000.0), "b": np.ones((300, 20), np.float32)})
    oc.save(folder / "many.safetensors", {f"layer.{i}.weight": np.full(4, i) for i in range(MANY)})
    oc.save(folder / "large.safetensors", {"a": np.zeros(64 << 20, np.uint8)})


def rows() -> list[dict[str, Any]]:
    """Return rows of several types."""
    return [{"id": i, "name": f"row {i}", "box": [1.5, i], "flag": None} for i in range(ROWS)]


@contextmanager
def cases(folder: Path) -> Iterator[dict[str, Callable[[], object]]]:
    """Yield the other nine cases by name."""
    import numpy as np

    import onecopy as oc

    data, arrays = rows(), {"a": np.zeros(16 << 20, np.uint8)}
    shared, store = oc.share(data), oc.Store(folder / "store")
    cached = oc.cached(store=store)(rows)
    cached()
    with oc.open(folder / "few.safetensors") as file, oc.open(folder / "large.safetensors", warm=True) as large:
        yield {
            "open": lambda: oc.open(folder / "few.safetensors").close(),
            "open of 20,000 arrays, each by name": lambda: [
                None for file in [oc.open(folder / "many.safetensors")] for name in file if file[name] is None
            ],
            "an array by name": lambda: file["a"],
            "warm of 64 MiB that are in memory": large.warm,
            "save of 16 MiB": lambda: oc.save(folder / "saved.safetensors", arrays),
            "share of 10,000 rows": lambda: oc.share(data).close(),
            "a row": lambda: shared[5_000],
            "10,000 rows in order": lambda: [None for row in shared if row is None],
            "a cached function that was called before": cached,
        }


def seconds_of(call: Callable[[], object]) -> float:
    """Return the seconds of one call, the least of several repetitions of at least 20 ms each."""
    call()
    timer, count = timeit.Timer(call, "import gc; gc.enable()"), 1  # as in a program
    while timer.timeit(count) < LEAST_S:
        count *= 2
    return min(timer.repeat(REPEATS, count)) / count


def main() -> None:
    """Time the cases, beginning with the first open."""
    folder, wanted = Path(sys.argv[1]), sys.argv[2:]
    if not folder.exists():
        make(folder)
        print("{}")
        return
    found = {"first open in a process": first_open(folder)}
    with cases(folder) as others:
        found |= {name: seconds_of(call) for name, call in others.items() if not wanted or name in wanted}
    print(json.dumps({name: seconds * 1e6 for name, seconds in found.items()}))


if __name__ == "__main__":
    main()
