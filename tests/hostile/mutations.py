"""Changes of good files of every format, opened and read: `python -m tests.hostile.mutations --count 1000000`.

A change is one to four steps: bits, numbers of 1 to 8 bytes at an edge, decimal numbers, parts that are removed,
doubled, moved or taken from another file, and a new length. What is opened then is listed and read: values, or an error
of the file. Anything else is printed with its number, by which `--first` repeats it: another exception, a signal, more
memory than 64 times the file and 64 MiB, more than two seconds. A signal ends the run.

What is read is not compared: most changes of data are not to be seen without a checksum.
"""

import argparse
import mmap
import os
import random
import resource
import signal
import struct
import sys
import tempfile
import time
import warnings
from collections import Counter
from itertools import islice
from pathlib import Path

from tests.support.places import GOLDEN

import onecopy as oc
import onecopy.records
from onecopy.arrays import open_arrays
from onecopy.arrays.entries import READ_SUFFIXES

SUFFIXES = {".oc", ".safetensors", *READ_SUFFIXES}
SOURCES = sorted(path for path in GOLDEN.rglob("*") if path.suffix in SUFFIXES)
MOST_SECONDS = 2.0
MOST_BYTES = 64 << 20
EDGES = [0, 1, 2, 3, 7, 8, 127, 255, 256, 4095, 4096, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**48]
EDGES += [2**62, 2**63 - 1, 2**63, 2**64 - 8, 2**64 - 1]
EXPECTED = (oc.FormatError, OSError)


def flip(data: bytearray, chance: random.Random) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def put_number(data: bytearray, chance: random.Random) -> None:
    size = chance.choice([1, 2, 4, 8])
    if len(data) < size:
        return
    at = chance.randrange(len(data) - size + 1)
    if chance.random() < 0.5:
        at -= at % size
    number = chance.choice([*EDGES, len(data), len(data) - at, chance.getrandbits(64)]) + chance.choice([0, 0, -1, 1])
    data[at : at + size] = struct.pack("<Q", number % 2**64)[:size]


def put_digits(data: bytearray, chance: random.Random) -> None:
    digits = [at for at, byte in enumerate(data[:20000]) if 0x30 <= byte <= 0x39]
    if not digits:
        return
    begin = end = chance.choice(digits)
    while end < len(data) and 0x30 <= data[end] <= 0x39:
        end += 1
    data[begin:end] = str(chance.choice([*EDGES, -1, len(data)])).encode()


def splice(data: bytearray, chance: random.Random) -> None:
    """Put a part of any file in the place of another part; either may be empty, or of this file."""
    other = data if chance.random() < 0.6 else CONTENTS[chance.randrange(len(CONTENTS))][1]
    sizes = [0, 1, 2, 4, 8, 16, 64, 512]
    at, begin = chance.randrange(len(other)), chance.randrange(len(data))
    data[begin : begin + chance.choice(sizes)] = other[at : at + chance.choice(sizes)]


def resize(data: bytearray, chance: random.Random) -> None:
    if chance.random() < 0.7:
        del data[chance.randrange(len(data)) :]
    else:
        data += bytes(chance.choice([1, 8, 4096]))


STEPS = [flip, flip, put_number, put_number, put_digits, *[splice] * 4, resize]
CONTENTS = [(path, path.read_bytes()) for path in SOURCES]


def mutation(number: int) -> tuple[Path, bytes]:
    """Return the file that was changed, and what became of it."""
    chance = random.Random(number)
    path, content = CONTENTS[number % len(CONTENTS)]
    data = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 4])):
        if data:
            chance.choice(STEPS)(data, chance)
    return path, bytes(data)


def use(path: str) -> None:
    with open_arrays(path) as file:
        for entry in islice(file.entries, 50):
            array = file[entry.name]
            array[tuple(slice(0, 50) for _ in array.shape)].tobytes()
        str(file.metadata)
        if file.kind != "records":
            return
    with oc.open_records(path) as opened:
        values = opened.values() if isinstance(opened, onecopy.records.Dict) else opened
        for value in islice(values, 20):
            repr(value)
        for at in (0, -1, len(values) // 2):
            if len(values):
                values[at]
        repr(opened)
        if isinstance(opened, onecopy.records.Dict):
            for key in islice(opened, 5):
                opened.get(key)


def outcome(path: str, nbytes: int) -> str:
    """Use a changed file; return "opened", "refused", or what is wrong."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    start, found = time.process_time(), "opened"
    try:
        use(path)
    except EXPECTED:
        found = "refused"
    except Exception as error:  # whatever it is, it is a find
        found = f"{type(error).__name__}: {error}"[:300]
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before
    if grown > MOST_BYTES + 64 * nbytes:
        found = f"took {grown >> 20} MiB"
    if (seconds := time.process_time() - start) > MOST_SECONDS:
        found = f"took {seconds:.1f} s"
    return found


def work(numbers: range, at_hand: mmap.mmap, folder: str) -> int:
    """Try some, whose number at hand is in shared memory; print what was found and the counts; 1 if anything was."""
    warnings.simplefilter("ignore")
    counts = Counter[str]()
    for number in numbers:
        source, content = mutation(number)
        at_hand[:] = struct.pack("<q", number)
        path = Path(folder, f"changed{source.suffix}")
        path.write_bytes(content)
        found = outcome(str(path), len(content))
        path.unlink()
        counts[found] += 1
        if found not in ("opened", "refused"):
            print(f"{number} ({source.relative_to(GOLDEN)}): {found}", flush=True)
    print(f"{len(numbers)} changes: {counts['opened']} opened, {counts['refused']} refused", flush=True)
    return int(len(counts) > 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first change")
    options = parser.parse_args()
    end, found = options.first + options.count, 0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, mmap.mmap(-1, 8) as at_hand:
        for begin in range(options.first, end, 20_000):
            child = os.fork()
            if child == 0:
                signal.alarm(600)
                os._exit(work(range(begin, min(begin + 20_000, end)), at_hand, folder))
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            found |= status != 0
            if status < 0:
                print(f"{struct.unpack('<q', at_hand[:])[0]}: {signal.Signals(-status).name}", flush=True)
                break
    return found


if __name__ == "__main__":
    sys.exit(main())
