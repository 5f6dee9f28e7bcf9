"""The ways for a process of a node to have the arrays of a model behind a URL, and the process that does so once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onecopy_bench.engine import ways
from onecopy_bench.engine.child import Steps, module, prepare
from onecopy_bench.engine.ways import named

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process is: the number of the node and of the process on it, the folder of the node, and all nodes."""

    node: int
    number: int
    folder: Path
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way(ways.Way):
    """`load` gets the object ("bucket/name") and the place; `private`: each process has a copy of its own.

    `ray`: it needs a Ray cluster of the nodes; `torchrun`: what torchrun gives to its processes.
    """

    load: Callable[[str, Place], Arrays]
    ray: bool = False
    torchrun: bool = False


def _opened(name: str, nodes: Any = None) -> Arrays:
    return dict(module("onecopy").open(f"s3://{name}", nodes=nodes).items())


def _url(name: str) -> str:
    return f"{os.environ['AWS_ENDPOINT_URL']}/{name}"


def _read(name: str) -> bytes:
    with module("fsspec").open(_url(name), block_size=32 << 20) as file:
        return bytes(file.fs.cat_file(_url(name)))


def _downloaded(name: str, place: Place) -> Arrays:
    """As `aws s3 cp` on each node, and then every process loads the file."""
    bucket, _, key = name.partition("/")
    path = place.folder / key
    if place.number == 0:
        module("boto3").client("s3").download_file(bucket, key, str(path) + ".part")
        Path(str(path) + ".part").rename(path)
    while not path.exists():
        time.sleep(0.005)
    return {one: tensor.numpy() for one, tensor in module("safetensors.torch").load_file(path).items()}


def _runai(name: str, _: Place) -> Arrays:
    os.environ.setdefault("RUNAI_STREAMER_S3_TIMEOUT", "300")  # s; by default 16 processes on 2 CPUs fail
    found = {}
    with module("runai_model_streamer").SafetensorsStreamer() as streamer:
        streamer.stream_file(f"s3://{name}")
        for one, tensor in streamer.get_tensors():
            found[one] = tensor.numpy().copy()  # the buffer is used again
    return found


def _tensorizer(name: str, _: Place) -> Arrays:
    found = module("tensorizer").TensorDeserializer(_url(name).replace(".safetensors", ".tensors"), device="cpu")
    return {one: tensor.numpy() for one, tensor in found.items()}


class _Box:
    """An actor that keeps the reference of what one process has put."""

    def __init__(self, reference: list[Any]) -> None:
        self._reference = reference

    def get(self) -> list[Any]:
        return self._reference


def _ray_put(name: str, place: Place) -> Arrays:
    """One process of all nodes loads the file and puts it; the others get it from the object store of their node."""
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


_OURS = ("onecopy", "onecopy.arrays", "onecopy.remote", "obstore")
_TORCH = ("torch", "safetensors.torch")

WAYS = (
    Way("onecopy", "oc.open(url): each node fetches once", _OURS, ours=True, load=lambda name, _: _opened(name)),
    Way(
        "onecopy, torchrun", "oc.open(url, nodes='torchrun'): nodes fetch different pieces, and send them by Gloo",
        (*_OURS, "torch", "torch.distributed", "onecopy.remote.torchrun"), ours=True, torchrun=True,
        load=lambda name, _: _opened(name, "torchrun"),
    ),
    Way(
        "onecopy, Ray", "oc.open(url, nodes='ray'): the same for nodes of a Ray cluster",
        (*_OURS, "ray", "onecopy.remote.ray"), ours=True, ray=True,
        load=lambda name, _: _opened(name, "ray"),
    ),
    Way(
        "ray.put", "one process loads and puts, all get", ("ray", "fsspec", "safetensors.numpy"),
        load=_ray_put, ray=True,
    ),
    Way(
        "download, then open", "boto3 once per node; safetensors.torch.load_file in each process", ("boto3", *_TORCH),
        load=_downloaded,
    ),
    Way(
        "fsspec + safetensors", "every process reads the object", ("fsspec", "aiohttp", "safetensors.numpy"),
        private=1.0, load=lambda name, _: dict(module("safetensors.numpy").load(_read(name))),
    ),
    Way(
        "runai-model-streamer", "every process streams from S3", ("torch", "runai_model_streamer"),
        private=1.0, load=_runai,
    ),
    Way("tensorizer", "every process streams from HTTP", ("torch", "tensorizer"), private=1.0, load=_tensorizer),
)  # fmt: skip


def as_tensors(source: Path) -> None:
    """Write the same arrays in the format of tensorizer beside a file."""
    tensors, parameter = module("safetensors.torch").load_file(source), module("torch").nn.Parameter
    serializer = module("tensorizer").TensorSerializer(str(source.with_suffix(".tensors")))
    serializer.write_state_dict({name: parameter(one, False) for name, one in tensors.items()})
    serializer.close()


def touched(arrays: Arrays, number: int, processes: int) -> int:
    """Read a byte of each page of the arrays of a process; return their sum with the names, modulo 2**63."""
    total = 0
    for at, name in enumerate(sorted(arrays)):
        if at % processes == number:
            flat = np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8)
            total += int(flat[::4096].sum(dtype=np.int64)) * (at + 1)
    return total % 2**63


def play(way: str, name: str, processes: int, hosts: tuple[str, ...], ray: str) -> Steps:
    """Load the arrays of an object, and hold them; `ray` is the address of the Ray cluster, "": none."""
    chosen = named(WAYS, way)
    node, number = (int(os.environ[variable]) for variable in ("BENCH_NODE", "BENCH_PROCESS"))
    place = Place(node, number, Path(os.environ["BENCH_FOLDER"]), hosts)
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
