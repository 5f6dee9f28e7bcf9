"""`onecopy bench nodes`: a model at a URL, loaded on several nodes with several processes each.

Nodes are network namespaces on this machine. The kernel limits the speed of their links, and their stores are on
separate loop disks, so that their page caches are separate too. The origin is nginx, which serves ranges from its page
cache. The benchmark measures the time from a common start until the last process has all arrays, the bytes that the
origin sends, and the memory of a node's processes while all of them hold the arrays. All nodes share the CPUs of this
machine. If the links are faster than the CPUs can copy, the numbers describe the CPUs, not the links.
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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import onecopy as oc
from onecopy.base.text import counted
from onecopy_bench.files.layout import combine, touch_array
from onecopy_bench.peers import Peer, installed, module, named
from onecopy_bench.pictures import by_case
from onecopy_bench.places import Unavailable, call, loop_disk
from onecopy_bench.processes import Workers, command_of, first_line_of, memory_of
from onecopy_bench.record import Absent, Case, Record
from onecopy_bench.runs import Attempt, Measured, Settings, Trial
from onecopy_bench.scenario import Plan, Scenario, Setup, option, size_option
from onecopy_bench.tables import MB, number, plain, table_by_case
from onecopy_bench.worker import SampleError, Steps, prepare

Arrays = Mapping[str, NDArray[Any]]


class Place(NamedTuple):
    """Where a process runs: the number of its node, its own number on that node, and the node's folder."""

    node: int
    number: int
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(Peer):
    """A loading method: `load` takes an object's name ("bucket/name") and the `Place`, and returns the arrays.

    `ray`: the method needs a Ray cluster of the nodes. `torchrun`: it needs the environment variables of torchrun.
    """

    load: Callable[[str, Place], Arrays]
    ray: bool = False
    torchrun: bool = False


def _opened(name: str, nodes: Any = None) -> Arrays:
    return dict(module("onecopy").open(f"s3://{name}", nodes=nodes).items())


def _read(name: str) -> bytes:
    url = f"{os.environ['AWS_ENDPOINT_URL']}/{name}"
    with module("fsspec").open(url, block_size=32 << 20) as file:
        return bytes(file.fs.cat_file(url))


def _downloaded(name: str, place: Place) -> Arrays:
    """Download once per node, as `aws s3 cp` does; every process then loads the file."""
    bucket, _, key = name.partition("/")
    path = place.folder / key
    if place.number == 0:
        module("boto3").client("s3").download_file(bucket, key, str(path) + ".part")
        Path(str(path) + ".part").rename(path)
    while not path.exists():
        time.sleep(0.005)
    return {one: tensor.numpy() for one, tensor in module("safetensors.torch").load_file(path).items()}


def _runai(name: str, _: Place) -> Arrays:
    os.environ.setdefault("RUNAI_STREAMER_S3_TIMEOUT", "300")  # s; with the default, 16 processes on 2 CPUs fail
    found = {}
    with module("runai_model_streamer").SafetensorsStreamer() as streamer:
        streamer.stream_file(f"s3://{name}")
        for one, tensor in streamer.get_tensors():
            found[one] = tensor.numpy().copy()  # the buffer is reused
    return found


class _Box:
    """An actor that keeps a reference to an object that one process put into the object store."""

    def __init__(self, reference: list[Any]) -> None:
        self._reference = reference

    def get(self) -> list[Any]:
        return self._reference


def _ray_put(name: str, place: Place) -> Arrays:
    """Load the file in one process, which calls ray.put; the others get it from their node's object store."""
    ray = module("ray")
    if (place.node, place.number) == (0, 0):
        box = ray.remote(_Box).options(name="box", namespace="bench", num_cpus=0)
        kept = box.remote([ray.put(module("safetensors.numpy").load(_read(name)))])
        ray.get(kept.get.remote())
        globals()["_kept"] = kept
    while True:
        try:
            box = ray.get_actor("box", namespace="bench")
            break
        except ValueError:
            time.sleep(0.02)
    return dict(ray.get(ray.get(box.get.remote())[0]))


_OURS = ("onecopy", "onecopy.arrays", "onecopy_remote", "obstore")

METHODS = (
    Method("onecopy", "oc.open(url): each node fetches once", _OURS, ours=True, load=lambda name, _: _opened(name)),
    Method(
        "onecopy, torchrun", "oc.open(url, nodes='torchrun'): nodes fetch different pieces, and send them by Gloo",
        (*_OURS, "torch", "torch.distributed", "onecopy_remote.torchrun"), ours=True, torchrun=True,
        load=lambda name, _: _opened(name, "torchrun"),
    ),
    Method(
        "onecopy, Ray", "oc.open(url, nodes='ray'): the same for nodes of a Ray cluster",
        (*_OURS, "ray", "onecopy_remote.ray_nodes"), ours=True, ray=True,
        load=lambda name, _: _opened(name, "ray"),
    ),
    Method(
        "ray.put", "one process loads and puts, all get", ("ray", "fsspec", "safetensors.numpy"),
        load=_ray_put, ray=True,
    ),
    Method(
        "download, then open", "boto3 once per node; safetensors.torch.load_file in each process",
        ("boto3", "torch", "safetensors.torch"), load=_downloaded,
    ),
    Method(
        "fsspec + safetensors", "every process reads the object", ("fsspec", "aiohttp", "safetensors.numpy"),
        private=1.0, load=lambda name, _: dict(module("safetensors.numpy").load(_read(name))),
    ),
    Method(
        "runai-model-streamer", "every process streams from S3", ("torch", "runai_model_streamer"),
        private=1.0, load=_runai,
    ),
)  # fmt: skip


def touched(arrays: Arrays, number: int, processes: int) -> int:
    """Return the checksum of one byte per page of the arrays that process `number` reads."""
    mine = sorted(arrays)[number::processes]
    return combine(touch_array(name, np.ascontiguousarray(arrays[name])) for name in mine)


def steps(method: str, name: str, processes: int, hosts: tuple[str, ...], ray: str) -> Steps:
    """Load an object's arrays, and keep them in memory. `ray` is the address of the Ray cluster, or ""."""
    chosen = named(METHODS, method)
    node, number = (int(os.environ[variable]) for variable in ("BENCH_NODE", "BENCH_PROCESS"))
    place = Place(node, number, Path(os.environ["BENCH_FOLDER"]))
    if ray:
        module("ray").init(address=ray, _node_ip_address=hosts[node], log_to_driver=False, configure_logging=False)
    prepare(chosen.needs)
    yield "ready", {}
    start = perf_counter_ns()
    arrays = chosen.load(name, place)
    for array in arrays.values():
        array.reshape(-1)[:1].tolist()
        array.reshape(-1)[-1:].tolist()
    ready = perf_counter_ns() - start
    yield "loaded", {"ready_ns": ready, "checksum": touched(arrays, number, processes)}
    del arrays


# --- the network, and the scenario ------------------------------------------------------------------------------------


ORIGIN = "10.88.0.254"
_NET = "10.88.0"
_numbers = itertools.count()  # the kernel removes links some time after their namespace
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
    """A network of nodes and the origin. `link` is a node's bandwidth in each direction, in bits per second."""

    def __init__(self, count: int, link: float) -> None:
        self.hosts, self._link = [f"{_NET}.{number + 1}" for number in range(count)], link
        self._bridge = f"oc{os.getpid()}b{next(_numbers)}"

    @contextlib.contextmanager
    def up(self) -> Iterator[None]:
        """Create the network for the duration of the block. Raise Unavailable if the kernel refuses."""
        with contextlib.ExitStack() as stack:
            call("ip", "link", "add", self._bridge, "type", "bridge")
            stack.callback(_try, "ip", "link", "del", self._bridge)
            call("ip", "link", "set", self._bridge, "up")
            for name, host in zip(self._names(), [*self.hosts, ORIGIN], strict=True):
                self._add(name, host, stack)
            yield

    def _names(self) -> list[str]:
        return [*(f"{self._bridge}n{number}" for number in range(len(self.hosts))), f"{self._bridge}o"]

    def _add(self, name: str, host: str, stack: contextlib.ExitStack) -> None:
        outer = f"{name}v"
        call("ip", "netns", "add", name)
        stack.callback(_try, "ip", "netns", "del", name)
        call("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name)
        call("ip", "link", "set", outer, "master", self._bridge, "up")
        call("ip", "-n", name, "addr", "add", f"{host}/24", "dev", "eth0")
        call("ip", "-n", name, "link", "set", "eth0", "up")
        call("ip", "-n", name, "link", "set", "lo", "up")
        if host == ORIGIN:
            return
        shape = ("tbf", "rate", f"{self._link:.0f}bit", "burst", "2mb", "latency", "50ms")
        call("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", *shape)
        call("tc", "qdisc", "add", "dev", outer, "root", *shape)

    def inside(self, number: int) -> list[str]:
        """Return the command prefix that runs a command on a node (-1: on the origin)."""
        return ["ip", "netns", "exec", self._names()[number]]

    @contextlib.contextmanager
    def serving(self, root: Path, folder: Path) -> Iterator[Path]:
        """Serve a folder from the origin during the block, and yield the access log. Raise Unavailable on failure."""
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


def _try(*words: str) -> None:
    with contextlib.suppress(Unavailable):
        call(*words)


def served(log: Path) -> int:
    """Return the number of content bytes that an origin has sent so far."""
    return sum(map(int, re.findall(r"^\d+$", log.read_text(), re.MULTILINE)))


NAME = "nodes"
NAMES = tuple(method.name for method in METHODS)
BUCKET, OBJECT = "models", "model.safetensors"


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """The scenario's options."""

    rounds: int = 3
    size: int = size_option("1GB", "Size of the model.")
    processes: int = option(8, "Number of processes on each node.")
    arrays: int = option(32, "Number of arrays of the model.")
    nodes: tuple[int, ...] = option((2, 4), "Number of nodes.", "--nodes")
    links: tuple[float, ...] = option((1.0, 5.0), "Speed of the link of each node, in Gbit/s.", "--link")
    ways: tuple[str, ...] = option(NAMES, "Method to measure.", "--way", choices=NAMES)


def plan(setup: Setup, options: Options) -> Plan:
    """Plan a run for each method, number of nodes and link speed. Stores and model are in a temporary folder."""
    setup.say("writing the model")
    source = setup.place / "root" / BUCKET / OBJECT
    source.parent.mkdir(parents=True)
    chosen, absent = installed(METHODS, options.ways)
    count = options.size // options.arrays // 4
    values = np.random.default_rng(0)
    oc.save(source, {f"layer.{n:05}": values.integers(0, 2**32, count, np.uint32) for n in range(options.arrays)})
    size, arrays = source.stat().st_size, dict(oc.open(source).items())
    expected = [touched(arrays, number, options.processes) for number in range(options.processes)]
    stores: list[Path] = []
    try:
        for _ in range(max(options.nodes)):
            disk = loop_disk(setup.place, 2 * options.size + (256 << 20))
            stores.append(setup.stack.enter_context(disk))
        with Network(1, 1e9).up():
            pass
    except Unavailable as reason:
        absent.append(Absent("all", str(reason)))
        chosen = []
    trials = [
        Trial(
            method.name,
            (counted(nodes, "node"), f"{link:g} Gbit/s"),
            nodes * size * (options.processes if method.private else 1),
            partial(_take, method, link, source, stores[:nodes], expected, options),
        )
        for nodes in options.nodes
        for link in options.links
        for method in chosen
    ]
    return Plan(chosen, trials, {"bytes": size, "file": size}, absent, source)


def _take(
    method: Method,
    link: float,
    source: Path,
    stores: list[Path],
    expected: list[int],
    options: Options,
    attempt: Attempt,
) -> Measured:
    for path in (path for store in stores for path in store.iterdir()):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
    network, size = Network(len(stores), link * 1e9), source.stat().st_size
    with contextlib.ExitStack() as stack:
        stack.enter_context(network.up())
        origin = stack.enter_context(network.serving(source.parent.parent, attempt.folder()))
        ray = stack.enter_context(_ray_cluster(network, stores, size)) if method.ray else ""
        job = stack.enter_context(_torchrun_job(network)) if method.torchrun else {}
        arguments = {"method": method.name, "name": f"{BUCKET}/{OBJECT}", "processes": options.processes}
        arguments |= {"hosts": tuple(network.hosts), "ray": ray}
        commands = [
            [*network.inside(node), *command_of(__name__, _variables(node, number, store, job))]
            for number in range(options.processes)
            for node, store in enumerate(stores)
        ]
        attempt.back()
        with Workers(commands, first_line_of(arguments), options.timeout) as workers:
            workers.gather("ready")
            attempt.wait()
            before, sent = sum(memory_of(pid).pss for pid in workers.pids), served(origin)
            messages = workers.step("loaded")
            held = sum(memory_of(pid).pss for pid in workers.pids) - before
            workers.dismiss()
        sent = served(origin) - sent
    sums, times = [message["checksum"] for message in messages], [message["ready_ns"] for message in messages]
    if sums != [one for one in expected for _ in stores]:
        raise SampleError("wrong data", f"the checksums of the processes differ from those of the file: {sums}")
    shares = {"origin_share": sent / size, "held_share": held / len(stores) / size}
    return Measured({"ready_ns": max(times), "first_ns": min(times), "origin_bytes": sent, **shares})


def _variables(node: int, number: int, store: Path, job: Mapping[str, object]) -> list[str]:
    """Return the environment of a process as NAME=VALUE strings. `job` contains the variables of torchrun, if any."""
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
        "RAY_AUTH_MODE": "disabled",  # otherwise Ray asks for a token that `ray start` has not issued
        **({**job, "GROUP_RANK": node, "LOCAL_RANK": number} if job else {}),
    }
    return [f"{name}={value}" for name, value in variables.items()]


_AGENT = """
import sys
import torch.distributed as dist
store = dist.TCPStore(sys.argv[1], int(sys.argv[2]), is_master=True, wait_for_workers=False)
print("serves", flush=True)
sys.stdin.read()
"""
"""A program that serves the store, like a torchrun agent."""


@contextlib.contextmanager
def _torchrun_job(network: Network) -> Iterator[dict[str, object]]:
    """Serve a torchrun agent's store inside the block, and yield the environment variables of its processes."""
    host, port = network.hosts[0], 29500
    command = [*network.inside(0), sys.executable, "-c", _AGENT, host, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        if agent.stdout.readline() != b"serves\n":
            raise SampleError("failed", "the store of the torchrun agent did not start")
        yield {
            "MASTER_ADDR": host,
            "MASTER_PORT": port,
            "GROUP_WORLD_SIZE": len(network.hosts),
            "TORCHELASTIC_USE_AGENT_STORE": True,
            "TORCHELASTIC_RUN_ID": "bench",
        }
        agent.stdin.close()


@contextlib.contextmanager
def _ray_cluster(network: Network, stores: list[Path], size: int) -> Iterator[str]:
    """Run Ray on all nodes inside the block, and yield the cluster's address."""
    ray = str(Path(sys.executable).with_name("ray"))
    address = f"{network.hosts[0]}:6379"
    common = ["--num-cpus=2", f"--object-store-memory={int(size * 1.2) + (300 << 20)}"]
    try:
        for node, (host, store) in enumerate(zip(network.hosts, stores, strict=True)):
            first = ["--head", "--port=6379", "--include-dashboard=false"] if node == 0 else [f"--address={address}"]
            words = [*network.inside(node), "env", *_variables(node, 0, store, {}), ray, "start", *first, *common]
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


def _title(record: Record, case: Case) -> str:
    seconds = float(record.data["bytes"]) * 8 / (float(case[1].split()[0]) * 1e9)
    return f"{', '.join(case)}: size / link = {number(seconds)} s"


def _described(record: Record) -> str:
    processes, size = counted(record.options["processes"], "process", "processes"), record.data["file"] / MB
    return f"{size:.0f} MB behind a URL, {processes} per node"


SCENARIO = Scenario(
    NAME,
    """Measure a model behind a URL on several nodes, with several processes each, over links of a given speed.

    Nodes are network namespaces with shaped links and separate disks, and nginx is the origin. The scenario needs root,
    iproute2, nginx and loop devices. The peers are other loaders from S3 and HTTP, and ray.put.
    """,
    Options(),
    plan,
    _described,
    table_by_case(COLUMNS, _title),
    draw=by_case(DRAWN),
)
