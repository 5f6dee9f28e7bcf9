"""Ranks that share without a collective: each asks for the same key, one builds, all map what it built.

torchrun --nproc-per-node=2 examples/torchrun_shared.py        (needs torch and onecopy-monitor)
"""

import multiprocessing
import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

import onecopy as oc
from onecopy_monitor import assert_shared
from onecopy_records.shuffle import Shuffle

ROWS, WORKERS = 100_000, 2


def load() -> list[tuple[str, int]]:
    """Make what takes long in life; one rank of the machine comes here, and none in the next run."""
    print(f"rank {os.environ['RANK']} builds", flush=True)
    return [(f"images/{i:08}.jpg", i % 1000) for i in range(ROWS)]


def main() -> None:
    """Share, read this rank's part with workers, and look at the processes of all ranks together."""
    samples = oc.share(load, key="torchrun example 1")
    dist.init_process_group("gloo")
    order = Shuffle.from_environment(len(samples), seed=7)
    loader = DataLoader(samples, batch_sampler=order.batches(256), num_workers=WORKERS)
    batches = iter(loader)
    count = sum(len(labels) for _, labels in batches)
    done = torch.tensor(count)
    dist.all_reduce(done)
    assert int(done) == ROWS

    batches = iter(loader)
    next(batches)
    pids: list[list[int]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(pids, [os.getpid(), *(worker.pid for worker in multiprocessing.active_children())])
    if dist.get_rank() == 0:
        assert_shared(samples, [pid for rank in pids for pid in rank])
        workers = sum(len(rank) - 1 for rank in pids)
        print(f"{len(pids)} ranks and their {workers} workers hold one copy of {samples.nbytes / 1e6:.1f} MB")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
