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
        operations: list[Callable[[Path], Any]] = [getattr(self, name) for name in OPERATIONS]
        for one in self.random.choices(operations, k=OPERATIONS_OF_A_RUN):
            path = self.random.choice(self.files)
            self.log.write_text(
                f"{one.__name__} of {path.name} after {[(name, how) for name, how, _ in self.outcomes]}"
            )
            if self.random.random() < 0.7:
                oc.evict(path)  # what this process reads is then charged to its group
            try:
                outcome, text = ("incomplete", "") if one(path) is False else ("done", "")
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

    def store(self) -> oc.Store:
        """Return a store on a disk or in memory; keys are new in each run."""
        return oc.Store(place="memory") if self.random.random() < 0.5 else oc.Store(self.folder / "store")

    @contextlib.contextmanager
    def emptied(self) -> Iterator[oc.Store]:
        """Give a store, from which everything is removed at the end."""
        store = self.store()
        try:
            yield store
        finally:
            store.prune(everything=True)

    def key(self) -> str:
        return f"{self.seed} {len(self.outcomes)}"

    def touch(self, path: Path) -> None:
        with oc.open(path) as file:
            for name in file:
                file[name][:, ::512].sum()

    def warm(self, path: Path) -> bool:
        with oc.open(path) as file:
            return file.warm().complete

    def warm_huge(self, path: Path) -> bool:
        with oc.open(path) as file:
            return file.warm(huge=True).complete

    def warm_and_verify(self, path: Path) -> bool:
        with oc.open(path, warm=True, verify=True) as file:
            return file.warm(mechanism="read").complete

    def verify(self, path: Path) -> None:
        with oc.open(path) as file:
            file.verify()

    def pin(self, path: Path) -> bool:
        with oc.open(path) as file:
            report = oc.files.pin(file)
            file["part.0"][:, ::512].sum()
            return report.pinned == report.bytes

    def copy(self, path: Path) -> None:
        with oc.open(path, mode="copy") as file:
            file["part.0"].sum()

    def snapshot(self, path: Path) -> None:
        with oc.open(path, mode=self.random.choice(["snapshot", "auto"])) as file:
            file["part.7"].sum()

    def stream(self, path: Path) -> None:
        with oc.open(path) as file:
            for _, _, array in file.stream(window=self.random.randrange(8 * MIB, self.limit + 16 * MIB)):
                array[:, ::512].sum()

    def save(self, path: Path) -> None:
        with oc.open(path) as file:
            oc.save(
                self.folder / "made.safetensors",
                {name: file[name] for name in file},
                durable=self.random.random() < 0.2,
            )

    def convert(self, path: Path) -> None:
        with oc.open(path) as file:
            oc.save(self.folder / "made.safetensors", file, durable=False)

    def save_in_memory(self, path: Path) -> None:
        with oc.open(path) as file:
            oc.save(IN_MEMORY / "made.safetensors", file, durable=False)

    def share(self, _: Path) -> None:
        count = self.size() // 100_000
        if self.random.random() < 0.5:
            oc.share(_rows(count))[-1:]
        else:
            with self.emptied() as store:
                oc.share(lambda: _rows(count), self.key(), store=store)[-1:]

    def share_object(self, path: Path) -> None:
        with oc.open(path) as file, self.emptied() as store:
            parts = {name: file[name] for name in file}
            oc.share_object(lambda: parts, self.key(), store=store)

    def cached(self, path: Path) -> None:
        def parts(path: str, key: str) -> Any:
            return {"key": key, "part": oc.open(path)["part.1"]}

        with self.emptied() as store:
            oc.cached(store=store, codec="object")(parts)(str(path), self.key())

    def load_private(self, path: Path) -> None:
        with oc.open(path, private=True) as file:
            array = file["part.2"]
            expect_memory(array.nbytes, "write", str(path))
            array += 1

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
        with oc.scratch(
            (self.size() // MIB + 1, MIB), "u1", anywhere=True, dir=self.random.choice([None, IN_MEMORY])
        ) as made:
            made.array[...] = 1

    def heap(self, _: Path) -> None:
        with alloc((self.size() // MIB + 1, MIB), "u1", heap_below="1 TB") as made:
            made.array[...] = 1


OPERATIONS = [name for name in vars(Run) if name[0] != "_" and name not in ("all", "size", "store", "emptied", "key")]
"""The names of all operations."""
