"""`onecopy bench nodes`: a model behind a URL, on several nodes with several processes each.

Nodes are network namespaces of this machine, with links that the kernel shapes, and stores on disks of their own, so
that their page caches are apart. The origin is nginx, which serves ranges from its page cache. What is measured is the
time from a common start until the last process has all arrays, the bytes that the origin sends, and the memory of the
processes of a node while all hold. CPUs are those of this machine, for all nodes together: rates beyond what they can
copy are theirs, not those of links.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import numpy as np

import onecopy as oc
from onecopy.base.text import counted
from onecopy_bench.engine import rounds, scenario as cli
from onecopy_bench.engine.crew import Crew, SampleError, command_of, first_line_of
from onecopy_bench.engine.machine.disks import loop_disk
from onecopy_bench.engine.machine.limits import Unavailable
from onecopy_bench.engine.memory import memory_of
from onecopy_bench.engine.pictures import by_case
from onecopy_bench.engine.record import Absent, Case, Log, Record, heading
from onecopy_bench.engine.rounds import Attempt, Progress, Settings, Taken, Turn, Watch
from onecopy_bench.engine.scenario import Scenario
from onecopy_bench.engine.tables import MB, number, plain, table_by_case
from onecopy_bench.engine.ways import installed
from onecopy_bench.workers import nodes as worker
from onecopy_bench.workers.nodes import WAYS, Way, as_tensors, touched

ORIGIN = "10.88.0.254"
_NET = "10.88.0"
_numbers = itertools.count()  # the kernel removes links some time after their namespace
_BURST, _LATENCY = "2mb", "50ms"
_CONFIGURATION = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 8192; }}
http {{
  sendfile on; tcp_nopush on; keepalive_requests 100000;
  log_format bytes '$body_bytes_sent'; access_log {folder}/access.log bytes;
  server {{ listen {origin}:80; root {root}; }}
}}
"""


class Network:
    """So many nodes with addresses, and the origin; `link` is bits per second of each node, in each direction."""

    def __init__(self, count: int, link: float) -> None:
        self.hosts, self._link = [f"{_NET}.{number + 1}" for number in range(count)], link
        self._bridge = f"oc{os.getpid()}b{next(_numbers)}"

    @contextlib.contextmanager
    def up(self) -> Iterator[None]:
        """Make the network for the block; Unavailable where that is refused."""
        with contextlib.ExitStack() as stack:
            try:
                _call("ip", "link", "add", self._bridge, "type", "bridge")
                stack.callback(_try, "ip", "link", "del", self._bridge)
                _call("ip", "link", "set", self._bridge, "up")
                for name, host in zip(self._names(), [*self.hosts, ORIGIN], strict=True):
                    self._add(name, host, stack)
            except FileNotFoundError:
                raise Unavailable("iproute2 is not installed") from None
            except subprocess.CalledProcessError as error:
                raise Unavailable(f"network namespaces are refused: {error.stderr.decode().strip()}") from None
            yield

    def _names(self) -> list[str]:
        return [*(f"{self._bridge}n{number}" for number in range(len(self.hosts))), f"{self._bridge}o"]

    def _add(self, name: str, host: str, stack: contextlib.ExitStack) -> None:
        outer = f"{name}v"
        _call("ip", "netns", "add", name)
        stack.callback(_try, "ip", "netns", "del", name)
        _call("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name)
        _call("ip", "link", "set", outer, "master", self._bridge, "up")
        _call("ip", "-n", name, "addr", "add", f"{host}/24", "dev", "eth0")
        _call("ip", "-n", name, "link", "set", "eth0", "up")
        _call("ip", "-n", name, "link", "set", "lo", "up")
        if host == ORIGIN:
            return
        shape = ("tbf", "rate", f"{self._link:.0f}bit", "burst", _BURST, "latency", _LATENCY)
        _call("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", *shape)
        _call("tc", "qdisc", "add", "dev", outer, "root", *shape)

    def inside(self, number: int) -> list[str]:
        """Return the words before a command that run it on a node; -1: on the origin."""
        return ["ip", "netns", "exec", self._names()[number]]

    @contextlib.contextmanager
    def serving(self, root: Path, folder: Path) -> Iterator[Path]:
        """Serve a folder from the origin in the block; yields its log, raises Unavailable without nginx."""
        if shutil.which("nginx") is None:
            raise Unavailable("nginx is not installed")
        configuration = folder / "nginx.conf"
        configuration.write_text(_CONFIGURATION.format(folder=folder, root=root, origin=ORIGIN))
        command = [*self.inside(-1), "nginx", "-c", str(configuration)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
            try:
                until = time.monotonic() + 10
                while not (folder / "nginx.pid").exists():
                    if server.poll() is not None or time.monotonic() > until:
                        raise Unavailable(f"nginx did not start: {(folder / 'error.log').read_text()[-300:]}")
                    time.sleep(0.02)
                yield folder / "access.log"
            finally:
                server.terminate()
                server.wait(30)


def served(log: Path) -> int:
    """Return the number of bytes of content that an origin has sent so far."""
    return sum(map(int, re.findall(r"^\d+$", log.read_text(), re.MULTILINE)))


def _call(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True).stdout.decode().strip()


def _try(*words: str) -> None:
    with contextlib.suppress(subprocess.CalledProcessError):
        _call(*words)


NAME = "nodes"
NAMES = tuple(way.name for way in WAYS)
BUCKET, OBJECT = "models", "model.safetensors"
READ_AHEAD = 128 << 10
"""Of the disks of nodes, in bytes: what the kernel gives a loop device."""


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run."""

    rounds: int = 3
    size: int = cli.size("1GB", "Size of the model.")
    processes: int = cli.option(8, "Number of processes on each node.")
    arrays: int = cli.option(32, "Number of arrays of the model.")
    nodes: tuple[int, ...] = cli.option((2, 4), "Numbers of nodes.", "--nodes", type=click.IntRange(1, 32))
    links: tuple[float, ...] = cli.option((1.0, 5.0), "Gbit/s of the link of each node.", "--link", type=float)
    ways: tuple[str, ...] = cli.option(NAMES, "How the model is loaded.", "--way", choices=NAMES)


def run(place: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
    """Measure every way for every number of nodes and every link, with stores and model in a folder."""
    watch(Progress(0, 1, "writing the model"))
    root = place / "root"
    source = root / BUCKET / OBJECT
    source.parent.mkdir(parents=True)
    chosen, absent = installed(WAYS, options.ways)
    count = options.size // options.arrays // 4
    values = np.random.default_rng(0)
    oc.save(source, {f"layer.{n:05}": values.integers(0, 2**32, count, np.uint32) for n in range(options.arrays)})
    size, arrays = source.stat().st_size, dict(oc.open(source).items())
    if any(way.name == "tensorizer" for way in chosen):
        as_tensors(source)
    expected = [touched(arrays, number, options.processes) for number in range(options.processes)]
    with contextlib.ExitStack() as stack:
        try:
            stores = [
                stack.enter_context(loop_disk(place, 2 * options.size + (256 << 20), READ_AHEAD))
                for _ in range(max(options.nodes))
            ]
            with Network(1, 1e9).up():
                pass
        except Unavailable as reason:
            absent.append(Absent("all", str(reason)))
            chosen = []
        head = heading(NAME, source, options, chosen, data={"bytes": size, "file": size}, absent=absent)
        turns = [
            Turn(
                way.name,
                (counted(nodes, "node"), f"{link:g} Gbit/s"),
                nodes * size * (options.processes if way.private else 1),
                partial(_take, way, link, source, stores[:nodes], expected, options),
            )
            for nodes in options.nodes
            for link in options.links
            for way in chosen
        ]
        return rounds.run(head, turns, options, place, watch=watch, log=log)


def _take(
    way: Way, link: float, source: Path, stores: list[Path], expected: list[int], options: Options, attempt: Attempt
) -> Taken:
    for path in (path for store in stores for path in store.iterdir()):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
    network, size = Network(len(stores), link * 1e9), source.stat().st_size
    with contextlib.ExitStack() as stack:
        stack.enter_context(network.up())
        origin = stack.enter_context(network.serving(source.parent.parent, attempt.folder()))
        ray = stack.enter_context(_ray_cluster(network, stores, size)) if way.ray else ""
        job = stack.enter_context(_torchrun_job(network)) if way.torchrun else {}
        errand = {"way": way.name, "name": f"{BUCKET}/{OBJECT}", "processes": options.processes}
        errand |= {"hosts": tuple(network.hosts), "ray": ray}
        commands = [
            [
                *network.inside(node),
                *command_of(worker, [*_variables(node, number, store), *_job_of(job, node, number)]),
            ]
            for number in range(options.processes)
            for node, store in enumerate(stores)
        ]
        attempt.back()
        with Crew(commands, first_line_of(errand), options.timeout) as crew:
            crew.gather("ready")
            attempt.wait()
            return _measured(crew, origin, len(stores), size, expected)


def _measured(crew: Crew, origin: Path, nodes: int, size: int, expected: list[int]) -> Taken:
    """Let all processes load, and compare what they have with the file."""
    before, sent = sum(memory_of(pid).pss for pid in crew.pids), served(origin)
    messages = crew.step("loaded")
    held = sum(memory_of(pid).pss for pid in crew.pids) - before
    sums = [message["checksum"] for message in messages]
    if sums != [one for one in expected for _ in range(nodes)]:
        raise SampleError("wrong data", f"the checksums of the processes are {sums}")
    crew.dismiss()
    sent = served(origin) - sent
    times = [message["ready_ns"] for message in messages]
    shares = {"origin_share": sent / size, "held_share": held / nodes / size}
    return Taken({"ready_ns": max(times), "first_ns": min(times), "origin_bytes": sent, **shares})


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


_AGENT = """
import sys
import torch.distributed as dist
store = dist.TCPStore(sys.argv[1], int(sys.argv[2]), is_master=True, wait_for_workers=False)
print("serves", flush=True)
sys.stdin.read()
"""
"""The store that an agent of torchrun serves."""


@contextlib.contextmanager
def _torchrun_job(network: Network) -> Iterator[dict[str, object]]:
    """Serve the store of a job's agent for the block; yield the variables that all its processes get from torchrun."""
    host, port = network.hosts[0], 29500
    command = [*network.inside(0), sys.executable, "-c", _AGENT, host, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        if agent.stdout.readline() != b"serves\n":
            raise SampleError("failed", "the store of the agent did not start")
        yield {
            "MASTER_ADDR": host,
            "MASTER_PORT": port,
            "GROUP_WORLD_SIZE": len(network.hosts),
            "TORCHELASTIC_USE_AGENT_STORE": True,
            "TORCHELASTIC_RUN_ID": "bench",
        }
        agent.stdin.close()


def _job_of(job: dict[str, object], node: int, number: int) -> list[str]:
    own = {**job, "GROUP_RANK": node, "LOCAL_RANK": number} if job else {}
    return [f"{name}={value}" for name, value in own.items()]


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
    what = f"{options['names']} of {options['arrays']} arrays of " if options.get("names") else ""
    delay = f", a round trip to the origin takes {options['delay_ms']:g} ms" if options.get("delay_ms") else ""
    processes = counted(options["processes"], "process", "processes")
    return f"nodes: {what}{size:.0f} MB behind a URL, {processes} a node{delay}; {counted(record.rounds, 'round')}"


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
    draw=by_case(DRAWN),
)
