"""A look at a group as OpenMetrics, for Prometheus and whatever reads its format.

The number of series is bounded: what grows with the machine (processes, small files) is added up, and big files are
told for the largest only. Names of files are labels, escaped by prometheus_client.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.core import Metric

    from onecopy.memory.containers import Container
    from onecopy.memory.snapshots import Snapshot

__all__ = ["FILES", "Metrics"]

FILES = 20
"""Big files that get series of their own, at most."""

_GROUP = {
    "real": "What the processes hold together, everything counted once.",
    "anonymous": "Memory of no file.",
    "file_clean": "Pages of files that can be dropped without writing.",
    "file_dirty": "Pages of files that must be written first.",
    "shmem": "Shared memory.",
    "page_tables": "Page tables, which are beside the total.",
    "swap": "Swapped out.",
    "sum_of_rss": "What adding up RSS says: shared pages once per process.",
}
_FILE = {
    "cached": "Of a big mapped file, in memory; absent where the kernel does not tell.",
    "dirty": "Of these, not yet on the disk.",
    "recently_evicted": "Dropped so lately that reading it again shows that memory is short.",
    "saves": "What as many private copies would need besides.",
}
_CONTAINER = {
    "limit": "The tightest limit on the control group; absent where there is none.",
    "left": "What may still be taken before the OOM killer comes.",
    "unreclaimable": "Anonymous and shared memory, and the kernel's own.",
    "working_set": "What Kubernetes shows: usage less inactive file pages.",
    "file_clean": "Page cache that can be dropped without writing.",
    "file_dirty": "Page cache that must be written first.",
}


class Metrics:
    """A collector for a registry of prometheus_client.

    Parameters
    ----------
    look
        Gives the look to be told.
    container
        Gives the control group, or None.
    group
        The value of the label ``group``: a name for these processes.
    """

    def __init__(self, look: Callable[[], Snapshot], container: Callable[[], Container | None], group: str) -> None:
        self._look, self._container, self._group = look, container, group
        self._lock = threading.Lock()
        self._seen: dict[tuple[int, float], tuple[int, int]] = {}
        self._faults = [0, 0]

    def describe(self) -> list[Metric]:
        """Return nothing: names are known when somebody looks, and registering does not look."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Sample, and yield all metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        snapshot = self._look()
        for name, help_text in _GROUP.items():
            gauge = GaugeMetricFamily(f"onecopy_group_{name}_bytes", help_text, labels=["group"])
            gauge.add_metric([self._group], getattr(snapshot.totals, name))
            yield gauge
        count = GaugeMetricFamily("onecopy_group_processes", "Processes of the group.", labels=["group"])
        count.add_metric([self._group], len(snapshot.processes))
        yield count
        for kind, value in zip(("minor", "major"), self._counted(snapshot), strict=True):
            text = f"{kind.title()} faults since this server looks."
            faults = CounterMetricFamily(f"onecopy_group_{kind}_faults", text, labels=["group"])
            faults.add_metric([self._group], value)
            yield faults
        for name, help_text in _FILE.items():
            gauge = GaugeMetricFamily(f"onecopy_file_{name}_bytes", help_text, labels=["group", "path"])
            for one in snapshot.files[:FILES]:
                value = getattr(one, name)
                if value is not None and (name != "saves" or one.cached is not None):
                    gauge.add_metric([self._group, _told(one.path)], value)
            yield gauge
        mappers = GaugeMetricFamily(
            "onecopy_file_mappers", "Processes of the group that map it.", labels=["group", "path"]
        )
        for one in snapshot.files[:FILES]:
            mappers.add_metric([self._group, _told(one.path)], len(one.pids))
        yield mappers
        yield from self._of_container()
        cost = GaugeMetricFamily("onecopy_own_cost_ratio", "Of one processor, what looking takes.")
        cost.add_metric([], snapshot.cost.share)
        yield cost

    def _counted(self, snapshot: Snapshot) -> tuple[int, int]:
        """Add what processes did since they were seen last: a sum that does not fall when one of them ends."""
        with self._lock:
            now = {one.key: (one.minor_faults, one.major_faults) for one in snapshot.processes}
            for key, faults in now.items():
                for kind, before in enumerate(self._seen.get(key, faults)):
                    self._faults[kind] += max(faults[kind] - before, 0)
            self._seen = now
            return self._faults[0], self._faults[1]

    def _of_container(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        found = self._container()
        if found is None:
            return
        for name, help_text in _CONTAINER.items():
            value = getattr(found, name)
            if value is not None:
                gauge = GaugeMetricFamily(f"onecopy_container_{name}_bytes", help_text, labels=["group"])
                gauge.add_metric([self._group], value)
                yield gauge
        for name, value, help_text in (
            ("refaults_bytes", found.refaults, "Read again after having been dropped: the sign that memory is short."),
            ("kills", found.kills, "Processes killed for want of memory."),
        ):
            if value is not None:
                counter = CounterMetricFamily(f"onecopy_container_{name}", help_text, labels=["group"])
                counter.add_metric([self._group], value)
                yield counter


def _told(path: str) -> str:
    """Return a path that can be encoded: bytes that are no UTF-8 become escapes."""
    return path.encode("utf-8", "backslashreplace").decode()
