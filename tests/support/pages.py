"""Pages of processes, read and hashed one by one: the truth about copies."""

import mmap

import numpy as np

from onecopy.memory import proc


def twice_in(pids: list[int]) -> int:
    """Return the bytes of anonymous pages that another page contains already, without zeros.

    A page that several processes share since a fork counts once.
    """
    seen, twice, shared = set[int](), 0, set[tuple[int, int]]()
    for pid in pids:
        with open(f"/proc/{pid}/mem", "rb", 0) as memory, open(f"/proc/{pid}/pagemap", "rb", 0) as page_map:  # noqa: PTH123
            for region in proc.smaps(pid):
                if not region.memory.anonymous:
                    continue
                page_map.seek(region.start // mmap.PAGESIZE * 8)
                states = np.frombuffer(page_map.read((region.end - region.start) // mmap.PAGESIZE * 8), "u8")
                is_anonymous = (states >> np.uint64(63) == 1) & (states >> np.uint64(61) & np.uint64(1) == 0)
                for number in np.flatnonzero(is_anonymous):
                    memory.seek(region.start + int(number) * mmap.PAGESIZE)
                    page = memory.read(mmap.PAGESIZE)
                    content, place = hash(page), (hash(page), region.start + int(number) * mmap.PAGESIZE)
                    is_shared = not int(states[number]) >> 56 & 1
                    if not any(page) or (is_shared and place in shared):
                        continue
                    shared |= {place} if is_shared else set()
                    twice += content in seen
                    seen.add(content)
    return twice * mmap.PAGESIZE
