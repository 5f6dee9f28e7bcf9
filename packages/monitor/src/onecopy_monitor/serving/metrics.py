"""Snapshots of a group as OpenMetrics, for Prometheus and compatible tools.

The number of time series is bounded: processes and small files are summed, and only the largest files have their own
series. File paths are labels, which prometheus_client escapes.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.core import Metric

    from onecopy.memory.cgroup import Container
    from onecopy_monitor.snapshots import Snapshot

__all__ = ["FILES", "Metrics"]

FILES = 20
"""Maximum number of files with their own series."""

_GROUP = {
    "real": "Deduplicated total of the processes.",
    "anonymous": "Anonymous memory.",
    "file_clean": "Pages of files that can be dropped without writing.",
    "file_dirty": "Pages of files that must be written before they can be dropped.",
    "shmem": "Shared memory.",
    "page_tables": "Page tables, which are not part of the total.",
    "swap": "Swapped-out memory.",
    "sum_of_rss": "Sum of RSS, which counts shared pages once per process.",
}
_FILE = {
    "cached_bytes": "Bytes of a big mapped file in memory; absent if the kernel does not report them.",
    "dirty_bytes": "Bytes of a big mapped file not yet written back to disk.",
    "recently_evicted_bytes": "Bytes evicted so recently that reading them again indicates memory shortage.",
    "saves_bytes": "Extra bytes that would be needed if each process had its own copy.",
    "mappers": "Processes of the group that map the file.",
}
_CONTAINER = {
    "limit": "The tightest limit on the control group; absent if there is none.",
    "left": "Bytes that can be allocated before the OOM killer acts.",
    "unreclaimable": "Anonymous memory, shared memory and kernel memory.",
    "working_set": "The number that Kubernetes shows: usage minus inactive file pages.",
    "file_clean": "Page cache that can be dropped without writing.",
    "file_dirty": "Page cache that must be written before it can be dropped.",
}


class Metrics:
    """A collector for a registry of prometheus_client.

    Parameters
    ----------
    sample
        Returns the snapshot to export.
    container
        Returns the control group, or None.
    group
        The value of the label ``group``: a name for these processes.
    """

    def __init__(self, sample: Callable[[], Snapshot], container: Callable[[], Container | None], group: str) -> None:
        self._sample, self._container, self._group = sample, container, group
        self._lock = threading.Lock()
        self._seen: dict[tuple[int, float], tuple[int, int]] = {}
        self._faults = [0, 0]

    def describe(self) -> list[Metric]:
        """Return [], so that registering the collector does not take a snapshot."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Take a snapshot and yield all metrics."""
        from prometheus_client.core import GaugeMetricFamily

        snapshot = self._sample()
        for name, help_text in _GROUP.items():
            yield self._gauge(f"group_{name}_bytes", help_text, getattr(snapshot.totals, name))
        yield self._gauge("group_processes", "Processes of the group.", len(snapshot.processes))
        for kind, value in zip(("minor", "major"), self._counted(snapshot), strict=True):
            text = f"{kind.title()} faults since this server started."
            yield self._counter(f"group_{kind}_faults", text, value)
        yield from self._of_files(snapshot)
        yield from self._of_container()
        cost = GaugeMetricFamily("onecopy_own_cost_ratio", "Share of one CPU that sampling uses.")
        cost.add_metric([], snapshot.cost.share)
        yield cost

    def _of_files(self, snapshot: Snapshot) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        for name, help_text in _FILE.items():
            gauge = GaugeMetricFamily(f"onecopy_file_{name}", help_text, labels=["group", "path"])
            for one in snapshot.files[:FILES]:
                value = len(one.pids) if name == "mappers" else getattr(one, name.removesuffix("_bytes"))
                if value is not None and (name != "saves_bytes" or one.cached is not None):
                    gauge.add_metric([self._group, _encodable(one.path)], value)
            yield gauge

    def _of_container(self) -> Iterator[Metric]:
        found = self._container()
        if found is None:
            return
        for name, help_text in _CONTAINER.items():
            if (value := getattr(found, name)) is not None:
                yield self._gauge(f"container_{name}_bytes", help_text, value)
        if found.refaults is not None:
            text = "Bytes read again after they had been dropped, a sign of memory shortage."
            yield self._counter("container_refaults_bytes", text, found.refaults)
        if found.kills is not None:
            yield self._counter("container_kills", "Processes killed by the OOM killer.", found.kills)

    def _gauge(self, name: str, help_text: str, value: float) -> Metric:
        from prometheus_client.core import GaugeMetricFamily

        gauge = GaugeMetricFamily(f"onecopy_{name}", help_text, labels=["group"])
        gauge.add_metric([self._group], value)
        return gauge

    def _counter(self, name: str, help_text: str, value: float) -> Metric:
        from prometheus_client.core import CounterMetricFamily

        counter = CounterMetricFamily(f"onecopy_{name}", help_text, labels=["group"])
        counter.add_metric([self._group], value)
        return counter

    def _counted(self, snapshot: Snapshot) -> tuple[int, int]:
        """Add the faults since the previous snapshot to totals, which do not decrease when a process ends."""
        with self._lock:
            now = {one.key: (one.minor_faults, one.major_faults) for one in snapshot.processes}
            for key, faults in now.items():
                for kind, before in enumerate(self._seen.get(key, faults)):
                    self._faults[kind] += max(faults[kind] - before, 0)
            self._seen = now
            return self._faults[0], self._faults[1]


def _encodable(path: str) -> str:
    """Return a path as text that can be encoded, with bytes that are not UTF-8 escaped."""
    return path.encode("utf-8", "backslashreplace").decode()
