"""`onecopy bench nodes`: a model behind a URL, on several nodes with several processes each.

Nodes are network namespaces of this machine, with links that the kernel shapes, and stores on disks of their own, so
that their page caches are apart. The origin is nginx, which serves ranges from its page cache. What is measured is the
time from a common start until the last process has all arrays, the bytes that the origin sends, and the memory of the
processes of a node while all hold. CPUs are those of this machine, for all nodes together: rates beyond what they can
copy are theirs, not those of links.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

import onecopy as oc
from onecopy_bench.engine import rounds
from onecopy_bench.engine import scenario as cli
from onecopy_bench.engine.crew import Crew, SampleError, command_of, first_line_of
from onecopy_bench.engine.machine.disks import loop_disk
from onecopy_bench.engine.machine.limits import Unavailable
from onecopy_bench.engine.memory import memory_of
from onecopy_bench.engine.pictures import by_case
from onecopy_bench.engine.record import Absent, Case, Log, Record, heading
from onecopy_bench.engine.rounds import Attempt, Progress, Settings, Taken, Turn, Watch
from onecopy_bench.engine.scenario import Scenario
from onecopy_bench.engine.tables import MB, counted, number, plain, table_by_case
from onecopy_bench.engine.ways import installed
from onecopy_bench.scenarios.network import ORIGIN, Network, Origin
from onecopy_bench.workers import nodes as worker
from onecopy_bench.workers.nodes import WAYS, Way, as_tensors, touched

NAME = "nodes"
NAMES = tuple(way.name for way in WAYS)
BUCKET, OBJECT = "models", "model.safetensors"
READ_AHEAD = 128 << 10
"""Of the disks of nodes, in bytes: what the kernel gives a loop device."""


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run."""

    rounds: int = 3
    size: int = cli.size("1GB", "Of the model.")
    processes: int = cli.option(8, "On each node.")
    arrays: int = cli.option(32, "Number of arrays of the model.")
    names: int = cli.option(0, "Open so many of them; 0: all.", type=cli.NATURAL)
    nodes: tuple[int, ...] = cli.option((2, 4), "Numbers of nodes.", "--nodes", type=click.IntRange(1, 32))
    links: tuple[float, ...] = cli.option((1.0, 5.0), "Gbit/s of the link of each node.", "--link", type=float)
    delay_ms: float = cli.option(0.0, "Milliseconds of a round trip to the origin.", type=click.FloatRange(min=0))
    ways: tuple[str, ...] = cli.option(NAMES, "How the model is loaded.", "--way", choices=NAMES)


def run(place: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
    """Measure every way for every number of nodes and every link, with stores and model in a folder."""
    watch(Progress(0, 1, "writing the model"))
    root = place / "root"
    source = root / BUCKET / OBJECT
    source.parent.mkdir(parents=True)
    chosen, absent = installed(WAYS, options.ways)
    chosen = [way for way in chosen if way.parts or not options.names]
    arrays = _written(source, options)
    if any(way.name == "tensorizer" for way in chosen):
        as_tensors(source)
    expected = [touched(arrays, number, options.processes) for number in range(options.processes)]
    with contextlib.ExitStack() as stack:
        try:
            stores = [
                stack.enter_context(loop_disk(place, 2 * options.size + (256 << 20), READ_AHEAD))
                for _ in range(max(options.nodes))
            ]
            with Network(1, 1e9, 0).up():
                pass
        except Unavailable as reason:
            absent.append(Absent("all", str(reason)))
            chosen = []
        wanted = sum(array.nbytes for array in arrays.values()) if options.names else source.stat().st_size
        names = tuple(arrays) if options.names else ()
        data = {"bytes": wanted, "file": source.stat().st_size}
        head = heading(NAME, source, options, chosen, data=data, absent=absent)
        turns = [
            Turn(
                way.name,
                (counted(nodes, "node"), f"{link:g} Gbit/s"),
                nodes * wanted * (options.processes if way.private else 1),
                _sample(way, link, source, wanted, names, stores[:nodes], expected, options),
            )
            for nodes in options.nodes
            for link in options.links
            for way in chosen
        ]
        return rounds.run(head, turns, options, place, watch=watch, log=log)


def _written(path: Path, options: Options) -> dict[str, np.ndarray]:
    """Write a model of random numbers, and return the arrays that are wanted of it, mapped."""
    values = np.random.default_rng(0)
    count = options.size // options.arrays // 4
    oc.save(path, {f"layer.{n:05}": values.integers(0, 2**32, count, np.uint32) for n in range(options.arrays)})
    with oc.open(path) as file:
        chosen = list(file)[:: options.arrays // options.names][: options.names] if options.names else list(file)
        return {name: file[name] for name in chosen}


def _sample(
    way: Way,
    link: float,
    source: Path,
    size: int,
    names: tuple[str, ...],
    stores: list[Path],
    expected: list[int],
    options: Options,
) -> Callable[[Attempt], Taken]:
    def take(attempt: Attempt) -> Taken:
        for store in stores:
            _empty(store)
        network = Network(len(stores), link * 1e9, options.delay_ms)
        with (
            network.up(),
            network.serving(source.parent.parent, attempt.folder()) as origin,
            contextlib.ExitStack() as stack,
        ):
            errand = {
                "way": way.name,
                "name": f"{BUCKET}/{OBJECT}",
                "processes": options.processes,
                "hosts": tuple(network.hosts),
                "names": names,
                "ray": stack.enter_context(_ray_cluster(network, stores, size)) if way.ray else "",
            }
            commands = [
                [*network.inside(node), *command_of(worker, _variables(node, number, store))]
                for number in range(options.processes)
                for node, store in enumerate(stores)
            ]
            attempt.back()
            with Crew(commands, first_line_of(errand), options.timeout) as crew:
                crew.gather("ready")
                attempt.wait()
                return _measured(crew, origin, len(stores), size, expected)

    return take


def _measured(crew: Crew, origin: Origin, nodes: int, size: int, expected: list[int]) -> Taken:
    """Let all processes load, and compare what they have with the file."""
    before = sum(memory_of(pid).pss for pid in crew.pids)
    served = origin.served()
    messages = crew.step("loaded")
    held = sum(memory_of(pid).pss for pid in crew.pids) - before
    sums = [message["checksum"] for message in messages]
    if sums != [one for one in expected for _ in range(nodes)]:
        raise SampleError("wrong data", f"the checksums of the processes are {sums}")
    crew.dismiss()
    served = origin.served() - served
    times = [message["ready_ns"] for message in messages]
    return Taken(
        {
            "ready_ns": max(times),
            "first_ns": min(times),
            "origin_bytes": served,
            "origin_share": served / size,
            "held_share": held / nodes / size,
        }
    )


def _variables(node: int, number: int, store: Path) -> list[str]:
    variables = {
        "ONECOPY_CACHE": store / "onecopy",
        "BENCH_NODE": node,
        "BENCH_PROCESS": number,
        "BENCH_FOLDER": store,
        "AWS_ENDPOINT_URL": f"http://{ORIGIN}",
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0",
        "OMP_NUM_THREADS": "1",
        "RAY_AUTH_MODE": "disabled",  # else a token is asked for that `ray start` has not given out
    }
    return [f"{name}={value}" for name, value in variables.items()]


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


@contextlib.contextmanager
def _ray_cluster(network: Network, stores: list[Path], size: int) -> Iterator[str]:
    """Start Ray on all nodes for the block; yield its address."""
    ray = str(Path(sys.executable).with_name("ray"))
    address = f"{network.hosts[0]}:6379"
    common = ["--num-cpus=2", f"--object-store-memory={int(size * 1.2) + (300 << 20)}"]
    try:
        for node, (host, store) in enumerate(zip(network.hosts, stores, strict=True)):
            first = ["--head", "--port=6379", "--include-dashboard=false"] if node == 0 else [f"--address={address}"]
            words = [*network.inside(node), "env", *_variables(node, 0, store), ray, "start", *first, *common]
            done = subprocess.run([*words, f"--node-ip-address={host}"], check=False, capture_output=True, text=True)
            if done.returncode:
                raise SampleError("failed", f"ray start: {done.stderr[-300:]}")
        yield address
    finally:
        subprocess.run([ray, "stop", "--force"], check=False, capture_output=True)


COLUMNS = (
    ("last process\nready, s", plain("ready_ns", 1e9)),
    ("the first\ns", plain("first_ns", 1e9)),
    ("sent by the\norigin, MB", plain("origin_bytes", MB)),
    ("of the\nmodel, x", plain("origin_share")),
    ("copies on\na node", plain("held_share")),
)
DRAWN = {"s until the last process is ready": plain("ready_ns", 1e9), "sent by the origin, x": plain("origin_share")}


def _seconds_of(record: Record, case: Case) -> float:
    """Return the seconds that the model takes over a link."""
    return float(record.data["bytes"]) * 8 / (float(case[1].split()[0]) * 1e9)


def _title(record: Record, case: Case) -> str:
    return f"{', '.join(case)}: size / link = {number(_seconds_of(record, case))} s"


def _described(record: Record) -> str:
    options, size = record.options, record.data["file"] / MB
    what = (
        f"{options['names']} of {options['arrays']} arrays of {size:.0f} MB" if options["names"] else f"{size:.0f} MB"
    )
    delay = f", a round trip to the origin takes {options['delay_ms']:g} ms" if options["delay_ms"] else ""
    processes = counted(options["processes"], "process", "processes")
    return f"nodes: {what} behind a URL, {processes} a node{delay}; {counted(record.rounds, 'round')}"


def _findings(record: Record) -> Iterator[str]:
    """Yield, for each case, how long each way takes beside the time of the link."""
    for case in record.cases():
        found = {row.name: record.spread(row.name, case, "ready_ns") for row in record.rows}
        shares = {name: spread.median / 1e9 / _seconds_of(record, case) for name, spread in found.items() if spread}
        words = ", ".join(f"{name} {number(share)}" for name, share in sorted(shares.items(), key=lambda one: one[1]))
        if words:
            yield f"{', '.join(case)}: times size / link: {words}."


SCENARIO = Scenario(
    NAME,
    """Measure a model behind a URL on several nodes, with several processes each, over links of a given speed.

    Nodes are network namespaces with shaped links and disks of their own, and nginx is the origin: needs root,
    iproute2, nginx and loop devices. The rivals are other loaders from S3 and HTTP, and ray.put.
    """,
    Options(),
    run,
    _described,
    table_by_case(COLUMNS, _title),
    _findings,
    by_case(DRAWN),
)
