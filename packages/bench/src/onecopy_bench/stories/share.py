"""The fourth story: the metadata of a dataset in all processes of a training job."""

from __future__ import annotations

from pathlib import Path

from onecopy_bench.engine.record import Log, Record
from onecopy_bench.scenarios.rows import data, share
from onecopy_bench.stories.story import Line, Metric, Scale, Source, Story, Telling, Watch, number_in

ROWS = 200_000
"""Of 860,001: what fits twenty minutes, with ten processes."""

LIST, NUMPY, TORCH, HANDLE, OURS = "list", "NumpySerializedList", "TorchSerializedList", "torch handle", "onecopy"
PEERS = (LIST, NUMPY, TORCH, HANDLE, OURS)
GIB = 2**30


def run(place: Path, scale: Scale, watch: Watch, log: Log) -> Record:
    """Measure it: one rank and two, with four workers each, started by fork."""
    count = 2000 if scale.quick else ROWS
    options = share.Options(
        peers=PEERS,
        starts=("fork",),
        ranks=(1, 2),
        workers=4,
        torch=not scale.quick,
        allocators=(),
        **scale.settings(1),
    )
    source = share.prepared(place, "coco", count, None, watch)
    return share.run(source, place, options, watch, log)


ONE_RANK, TWO_RANKS = ("fork", "1"), ("fork", "2")

STORY = Story(
    name="share",
    title="Metadata of a dataset, in 5 processes and in 10",
    problem="A training job holds a list of annotations in its main process and forks workers. Every worker that reads"
    " a Python object writes to its reference count, and so copies its page: each ends with a list of its own.",
    sources=(
        Source(
            "Yuxin Wu: Demystify RAM Usage in Multi-Process Data Loaders",
            "https://ppwwyyxx.com/blog/2022/Demystify-RAM-Usage-in-Multiprocess-DataLoader/",
            "A naive use of PyTorch dataset and dataloader can easily replicate your dataset's RAM usage by 40 times",
            size=f"COCO train2017, {data.COCO_ROWS:,} annotations, 505 MiB when pickled; 4 workers a rank",
        ),
    ),
    metrics=(
        Metric("five", "all of 1 x (1 + 4) processes", "GiB", number_in(ONE_RANK, "pss", GIB)),
        Metric("ten", "all of 2 x (1 + 4) processes", "GiB", number_in(TWO_RANKS, "pss", GIB)),
        Metric("worker", "private, one worker", "MiB", number_in(ONE_RANK, "worker_uss", float(1 << 20))),
        Metric("ready", "ready, 2 ranks", "s", number_in(TWO_RANKS, "ready_ns", 1e9)),
        Metric("again", "ready, 2 ranks, second run", "s", number_in(TWO_RANKS, "second_ready_ns", 1e9)),
    ),
    lines=(
        Line(LIST, "a list, fork", {"five": "9.6 GiB", "worker": "1.8 GiB"}),
        Line(NUMPY, "NumpySerializedList, fork", {"five": "1.58 GiB", "worker": "3.7 MiB"}),
        Line(TORCH, "TorchSerializedList; published: forkserver, preload (5), each rank its own (10)",
             {"five": "1.69 GiB", "ten": "3.75 GiB", "worker": "16.9 MiB"}),
        Line(HANDLE, "TorchShmSerializedList: one rank builds, and hands it on", {"ten": "2.51 GiB"}),
        Line(OURS, "oc.share(load, key)", ours=True),
    ),
    telling=(
        Telling(
            "five", LIST, TORCH, OURS, "metadata of a dataset: 5 processes",
            "Five processes hold {before} with a list, {after} with TorchSerializedList, and {ours} with oc.share.",
        ),
        Telling(
            "ten", TORCH, HANDLE, OURS, "the same, 10 processes in 2 ranks",
            "Ten processes in two ranks: {before} when each builds, {after} when one does, {ours} with oc.share.",
        ),
    ),
    carries=(
        "Memory: it repeats to the megabyte on any Linux machine with the same Python and torch. With all 860,001 rows"
        " the list took 9.66 GiB on a machine like this one.",
        "That a second run finds the data of the first: nothing else in the table does.",
    ),
    changes=(
        f"The size: {ROWS:,} rows here instead of {data.COCO_ROWS:,}, made up with the statistics of COCO. What"
        " processes hold without any data (torch, mostly) is in all rows, here as there.",
        "Seconds: they are those of two CPUs, and of one round.",
    ),
    command="onecopy bench share --start fork --ranks 1 --ranks 2 --no-heap",
    scenario=share.SCENARIO,
    run=run,
    size=lambda run: f"{run.data['rows']:,} rows",
    seconds=250.0,
)  # fmt: skip
