"""What the start of a job on many nodes takes, by calculation.

`python -m tests.support.job_start` prints the table of docs/explanation/scale.md, where the formulas are.
They know links, neither CPUs nor disks.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

__all__ = ["EACH_NODE", "EACH_PROCESS", "TOGETHER", "Job", "lines", "origin_bytes", "seconds"]

EACH_PROCESS, EACH_NODE, TOGETHER = "each process fetches", "onecopy: each node fetches", "onecopy, together"
OVERHEAD = 1.05
"""Bytes on the wire for a byte of content: headers of TCP, IP and Ethernet with packets of 1500 bytes."""
START_S, JOIN_S = 0.2, 0.5
"""Seconds until the first bytes come; until the nodes have found each other."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job that starts.

    Attributes
    ----------
    nodes, processes
        Number of nodes; of processes on each.
    size
        Bytes of the model.
    link, origin
        Bits per second of the link of a node; that the origin can send in all.
    """

    nodes: int
    processes: int = 8
    size: float = 100e9
    link: float = 25e9
    origin: float = 100e9


def origin_bytes(way: str, job: Job) -> float:
    """Return the bytes that the origin sends.

    Examples
    --------
    >>> [origin_bytes(way, Job(10)) / 1e9 for way in (EACH_PROCESS, EACH_NODE, TOGETHER)]
    [8000.0, 1000.0, 100.0]
    """
    return job.size * {EACH_PROCESS: job.nodes * job.processes, EACH_NODE: job.nodes, TOGETHER: 1}[way]


def seconds(way: str, job: Job) -> float:
    """Return the seconds until the last process has the model, if links are the limit.

    Examples
    --------
    >>> [round(seconds(way, Job(10))) for way in (EACH_PROCESS, EACH_NODE, TOGETHER)]
    [672, 84, 34]
    """
    through_link = job.size * (job.processes if way == EACH_PROCESS else 1) * 8 / job.link
    from_origin = origin_bytes(way, job) * 8 / job.origin
    return START_S + (JOIN_S if way == TOGETHER else 0) + OVERHEAD * max(through_link, from_origin)


def lines(nodes: tuple[int, ...] = (1, 10, 100, 1000), price: float = 0.02, hour: float = 30.0) -> list[str]:
    """Return the rows of the table: `price` in $ per GB that the origin sends, `hour` in $ per node and hour."""
    found = []
    for count in nodes:
        for way in (EACH_PROCESS, EACH_NODE, TOGETHER):
            job = Job(count)
            sent, time = origin_bytes(way, job), seconds(way, job)
            traffic, waiting = sent / 1e9 * price, count * time / 3600 * hour
            numbers = [f"{sent / 1e12:,.1f}", *(f"{one:,.0f}" for one in (time, traffic, waiting))]
            found.append(f"| {count:,} | {way} | {' | '.join(numbers)} |")
    return found


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
