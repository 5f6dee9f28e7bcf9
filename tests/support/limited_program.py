"""Operations in a small control group: a random sequence of what onecopy offers, on files of up to four times its size.

Each operation ends normally, is refused with a MemoryError that has the numbers, or reports that it is not complete.
"""

import contextlib
import gc
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

import onecopy as oc
from onecopy.arrays.scratch import alloc
from onecopy.files.page_cache import expect_memory
from onecopy_images import mosaic

MIB, WIDTH = 1 << 20, 8192
OPERATIONS_OF_A_RUN = 5
NUMBERS = re.compile(
    r"\d+ bytes of memory and \d+ bytes of working memory are needed, but only \d+ may be used \(limited by .+\)"
)
IN_MEMORY = Path("/dev/shm")


def write_files(folder: Path, sizes: list[int]) -> dict[int, Path]:
    """Write files of arrays with checksums, by their size in MiB."""
    files = {}
    for size in sizes:
        files[size] = folder / f"{size}.safetensors"
        rows = np.arange(size * MIB // 4096 * 1024, dtype=np.float32).reshape(-1, 1024)
        oc.save(files[size], {f"part.{i}": part for i, part in enumerate(np.array_split(rows, 8))})
        image = rows.view(np.uint8).reshape(-1, WIDTH)[: size * 32]  # a quarter of the file
        tifffile.imwrite(folder / f"{size}.tif", image, compression="zlib", tile=(256, 256))
    tifffile.imwrite(folder / "small.tif", image[:256], compression="zlib", tile=(256, 256))
    return files


def _rows(count: int) -> Iterator[bytes]:
    return (b"%6d" % number * 17_000 for number in range(count))


class Run:
    """One random sequence in a process of the group; `log` has the operation that a killed process was in.

    `outcomes` has (operation, "done", "refused" or "incomplete", the message).
    """

    def __init__(self, seed: int, files: dict[int, Path], folder: Path, limit: int) -> None:
        self.random, self.folder, self.limit = random.Random(seed), folder, limit
        self.files = [path for size, path in files.items() if size * MIB <= 4 * limit]
        self.outcomes: list[tuple[str, str, str]] = []
        self.seed, self.log = seed, folder / "log"

    def all(self) -> list[tuple[str, str, str]]:
        gc.freeze()  # a collection would copy the pages of all objects of the test session into the group
        operations: list[Callable[[Any], Any]] = [getattr(self, name) for name in OPERATIONS]
        for one in self.random.choices(operations, k=OPERATIONS_OF_A_RUN):
            path = self.random.choice(self.files)
            self.log.write_text(
                f"{one.__name__} of {path.name} after {[(name, how) for name, how, _ in self.outcomes]}"
            )
            if self.random.random() < 0.7:
                oc.evict(path)  # what this process reads is then charged to its group
            try:
                if "file" in one.__annotations__:
                    with oc.open(path) as file:
                        result = one(file)
                else:
                    result = one(path)
                outcome, text = "incomplete" if result is False else "done", ""
            except MemoryError as error:
                outcome, text = "refused", str(error)
                assert NUMBERS.search(text), text
            self.outcomes.append((one.__name__, outcome, text))
            for left in (self.folder, IN_MEMORY):
                for made in left.glob("made*"):
                    made.unlink()
        return self.outcomes

    def size(self) -> int:
        """Return a number of bytes up to four times the limit."""
        return self.random.randrange(MIB, 4 * self.limit)

    @contextlib.contextmanager
    def emptied(self) -> Iterator[oc.Store]:
        """Give a store on a disk or in memory, from which everything is removed at the end."""
        store = oc.Store(place="memory") if self.random.random() < 0.5 else oc.Store(self.folder / "store")
        try:
            yield store
        finally:
            store.prune(everything=True)

    def key(self) -> str:
        return f"{self.seed} {len(self.outcomes)}"

    def warm_and_verify(self, path: Path) -> bool:
        with oc.open(path, warm=True, verify=True) as file:
            return file.warm(mechanism="read").complete

    def copy(self, path: Path) -> None:
        with oc.open(path, mode="copy") as file:
            file["part.0"].sum()

    def snapshot(self, path: Path) -> None:
        with oc.open(path, mode=self.random.choice(["snapshot", "auto"])) as file:
            file["part.7"].sum()

    def load_private(self, path: Path) -> None:
        with oc.open(path, private=True) as file:
            array = file["part.2"]
            expect_memory(array.nbytes, "write", str(path))
            array += 1

    def share(self, _: Path) -> None:
        oc.share(_rows(self.size() // 100_000))[-1:]

    def share_with_key(self, _: Path) -> None:
        count = self.size() // 100_000
        with self.emptied() as store:
            oc.share(lambda: _rows(count), self.key(), store=store)[-1:]

    def cached(self, path: Path) -> None:
        def parts(path: str, key: str) -> Any:
            return {"key": key, "part": oc.open(path)["part.1"]}

        with self.emptied() as store:
            oc.cached(store=store, codec="object")(parts)(str(path), self.key())

    def image(self, path: Path) -> None:
        with self.emptied() as store, oc.images.open(path.with_suffix(".tif"), store=store) as image:
            image.array[::64].sum()

    def decode(self, path: Path) -> None:
        with oc.images.decode(path.with_suffix(".tif")) as pixels:
            pixels.array[::64] = 1

    def mosaic(self, path: Path) -> None:
        tile = self.random.choice([path, path.with_name("small")]).with_suffix(".tif")
        with tifffile.TiffFile(tile) as file:
            extent = file.series[0].shape[0]
        count = min(self.size() // (extent * WIDTH) + 1, 40)
        mosaic([tile] * count, [(number * extent, 0) for number in range(count)]).close()

    def scratch(self, _: Path) -> None:
        place, shape = self.random.choice([None, IN_MEMORY]), (self.size() // MIB + 1, MIB)
        with oc.scratch(shape, "u1", anywhere=True, dir=place) as made:
            made.array[...] = 1

    def heap(self, _: Path) -> None:
        with alloc((self.size() // MIB + 1, MIB), "u1", heap_below="1 TB") as made:
            made.array[...] = 1

    # --- on an open file ---

    def touch(self, file: oc.ArrayFile) -> None:
        for name in file:
            file[name][:, ::512].sum()

    def warm(self, file: oc.ArrayFile) -> bool:
        return file.warm(huge=self.random.random() < 0.5).complete

    def verify(self, file: oc.ArrayFile) -> None:
        file.verify()

    def pin(self, file: oc.ArrayFile) -> bool:
        report = oc.files.pin(file)
        file["part.0"][:, ::512].sum()
        return report.pinned == report.bytes

    def stream(self, file: oc.ArrayFile) -> None:
        for _, _, array in file.stream(window=self.random.randrange(8 * MIB, self.limit + 16 * MIB)):
            array[:, ::512].sum()

    def save(self, file: oc.ArrayFile) -> None:
        arrays = {name: file[name] for name in file}
        oc.save(self.folder / "made.safetensors", arrays, durable=self.random.random() < 0.2)

    def convert(self, file: oc.ArrayFile) -> None:
        place = self.random.choice([self.folder, IN_MEMORY])
        oc.save(place / "made.safetensors", file, durable=False)

    def share_object(self, file: oc.ArrayFile) -> None:
        with self.emptied() as store:
            parts = {name: file[name] for name in file}
            oc.share_object(lambda: parts, self.key(), store=store)


NO_OPERATIONS = ("__init__", "all", "size", "emptied", "key")
OPERATIONS = [name for name, value in vars(Run).items() if callable(value) and name not in NO_OPERATIONS]
"""The names of all operations."""
