"""Workers that load the same torch checkpoint: their memory, and when they are ready, without and with onecopy.

python examples/eight_workers.py [--gigabytes 1] [--workers 8] [--rounds 3] [--json FILE] [--picture FILE]
"""

import argparse
import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LAYERS, KEYS = 16, ("bytes", "ready", "again")
COMMANDS = {"plain": [], "run": ["-m", "onecopy", "run", "--", sys.executable], "mmap": []}


def work(how: str, path: str, results: Any) -> None:
    """Be one worker: load the checkpoint, run a forward pass, report the result, and wait."""
    import torch

    torch.set_num_threads(1)
    values, weights = torch.ones(1), torch.load(path, mmap=how == "mmap")
    for weight in weights.values():
        values = weight @ values.expand(weight.shape[1])
    results.put(values.sum().item())
    signal.pause()


def serve(how: str, path: str, number: str) -> None:
    """Start the workers, and start them again after a line on stdin."""
    context = multiprocessing.get_context("spawn")
    for _ in range(2):
        results = context.SimpleQueue()
        workers = [context.Process(target=work, args=(how, path, results)) for _ in range(int(number))]
        for worker in workers:
            worker.start()
        print(sorted(results.get() for _ in workers), flush=True)
        sys.stdin.readline()
        for worker in workers:
            worker.kill()
            worker.join()


def measure(how: str, path: str, workers: int) -> dict[str, Any]:
    """Run a server from a cold file. Measure its memory, and the seconds until the slowest worker is ready, twice."""
    import onecopy as oc
    from onecopy.memory.selection import with_descendants

    oc.evict(path)
    command = [sys.executable, *COMMANDS[how], os.path.relpath(__file__), "--serve", how, path, str(workers)]
    begin = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        results, ready = server.stdout.readline(), time.monotonic() - begin
        found, begin = oc.explain(with_descendants([server.pid])), time.monotonic()
        print(file=server.stdin, flush=True)
        again = server.stdout.readline() == results and time.monotonic() - begin
        server.communicate()
    page = str(found).replace(f"{Path(path).parent}/", "")
    values = {"bytes": found.bytes, "ready": ready, "again": again, "results": results}
    return values | ({"page": page, "expected": found.expected} if how == "plain" else {})


def main(gigabytes: float, workers: int, rounds: int) -> dict[str, Any]:
    """Measure each way to start the server in turn, and print the medians."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        path, width = str(Path(folder, "model.pt")), int((gigabytes * 1e9 / 4 / LAYERS) ** 0.5)
        torch.save({f"{i}.weight": torch.randn(width, width) / width**0.5 for i in range(LAYERS)}, path)
        measured = [{how: measure(how, path, workers) for how in COMMANDS} for _ in range(rounds)]
    assert len({one["results"] for each in measured for one in each.values()}) == 1, "the results differ"
    rows = {how: {key: statistics.median(each[how][key] for each in measured) for key in KEYS} for how in COMMANDS}
    print(measured[0]["plain"]["page"], "\n", sep="\n")
    for how, row in rows.items():
        print(f"{how:6} {row['bytes'] / 1e9:6.2f} GB   ready {row['ready']:5.1f} s   again {row['again']:5.1f} s")
    machine = f"{os.cpu_count()} CPUs, Linux {os.uname().release}, {time.strftime('%Y-%m-%d')}"
    return {"machine": machine, "gigabytes": gigabytes, "workers": workers, "medians": rows, "rounds": measured}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        sys.exit(serve(*sys.argv[2:]))
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path, help="an SVG; needs onecopy-bench")
    given = parser.parse_args()
    record = main(given.gigabytes, given.workers, given.rounds)
    if given.json:
        given.json.write_text(json.dumps(record, indent=1) + "\n")
    if given.picture:
        from onecopy_bench.two_schemes import workers

        given.picture.write_text(workers(record))
