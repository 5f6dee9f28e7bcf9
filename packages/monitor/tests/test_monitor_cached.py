"""How much of a mapped file is cached, as a sampler reports it: the truth, or the reason why it is unknown."""

import errno
import mmap
import os
from pathlib import Path

import pytest
from tests.support.page_cache import nearly
from tests.support.places import ROOT
from tests.support.waiting import until

from onecopy_monitor import Sampler

pytestmark = pytest.mark.processes

MIB = 1 << 20
PAGES = 64 << 10  # what may be read with the last one


@pytest.mark.parametrize("part", [0, 25, 50, 100])
def test_what_is_cached_is_right_or_unknown(part, cold_file, cached, cached_now, nobody, in_child, needs_cachestat):
    """The owner gets the true share; another user, to whom mincore would report 100 %, gets unknown."""
    size = 16 * MIB
    path = cold_file(size)
    path.chmod(0o644)
    path_here = Path(path.name)  # another user may not search the folders above
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        file.read(size * part // 100)

    def look() -> tuple[int | None, str]:
        with (
            path_here.open("rb") as file,
            mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ),
            Sampler([os.getpid()]) as us,
        ):
            (found,) = [one for one in us.sample().files if one.path.endswith(path.name)]
            return found.cached, found.unknown

    # Until, because a page that the kernel moves, or drops meanwhile, is missing from one of two counts.
    until(lambda: look() == (cached_now(path), ""), "the cached bytes")
    assert cached(path) == pytest.approx(size * part // 100, abs=PAGES)
    cached_there, unknown = in_child(look, uid=nobody)
    assert cached_there is None
    assert unknown in {"this user neither owns the file nor may write to it", "this user may not open it"}


LOOK = """
    import mmap, os, sys
    from onecopy_monitor import Sampler
    sys.path.append(sys.argv[1])
    from tests.support.seccomp import refuse

    path, removed, errno, user = sys.argv[2], *map(int, sys.argv[3:])
    file = open(path, "rb")
    memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    held = sum(memory[:: mmap.PAGESIZE])
    with Sampler([os.getpid()]) as us:
        us.sample()  # imports what only root may read
    if removed:
        os.unlink(path)
    if user:
        os.setuid(user)
    if errno:
        refuse("cachestat", error=errno)
    with Sampler([os.getpid()]) as us:
        (found,) = [one for one in us.sample().files if path in one.path]
    print(found.cached, found.unknown)
"""


NOT_OURS = "this user neither owns the file nor may write to it"


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize(
    ("error", "answer", "answer_to_other_user"),
    [
        (0, "", NOT_OURS),
        (errno.EPERM, "", NOT_OURS),
        (errno.ENOSYS, "", "the kernel does not support cachestat (added in Linux 6.5)"),
        (errno.EIO, "cachestat failed: Input/output error", "cachestat failed: Input/output error"),
    ],
)
@pytest.mark.parametrize("is_owner", [True, False])
def test_what_is_cached_is_asked_in_several_ways(
    cold_file, nobody, needs_cachestat, python, removed, error, answer, answer_to_other_user, is_owner
):
    """By mincore, but only where it is true; of a removed file through the mapping, as root, or a descriptor."""
    path = cold_file(16 * MIB)
    path.chmod(0o644)
    path.read_bytes()
    reason = answer if is_owner else answer_to_other_user if removed else "this user may not open it"
    told = python(LOOK, ROOT, path.name, int(removed), error, 0 if is_owner else nobody)
    cached, _, why = told.strip().partition(" ")
    assert why == reason
    assert cached == "None" if reason else int(cached) == nearly(16 * MIB)
