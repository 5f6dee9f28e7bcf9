"""`explain` of real processes: copies, the files whose bytes they are, what is no copy, and what cannot be read."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.children import talking
from tests.support.kernel import needs_memory_files
from tests.support.pages import twice_in
from tests.support.watched import MAP, TOUCH_ALL, Watched

import onecopy as oc
from onecopy.memory import Cause, Explanation, candidates, copies, explaining, proc, remedies
from onecopy.memory.proc import children_of

MIB = 1 << 20
LOAD = """
    import numpy, sys
    held = [numpy.load(path) for path in sys.argv[1:]]
"""
FORK = """
    import os
    data = [bytearray(os.urandom(4096)) for _ in range(40 << 8)]
    order, theirs = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        while os.read(order[0], 1):
            for one in data[: len(data) // 2]:
                one[0] = 1
            os.write(theirs[1], b".")
"""
WRITE = """
    os.write(order[1], b".")
    os.read(theirs[0], 1)
"""


def only(explained: Explanation, code: str, name: str = "") -> Cause:
    (found,) = [one for one in explained.causes if one.code == code and name in one.text]
    return found


def of_code(explained: Explanation, code: str) -> list[Cause]:
    return [one for one in explained.causes if one.code == code]


def assert_each_byte_is_reported_once(found: Explanation) -> None:
    parts = sum(one.bytes for one in found.causes if one.code not in ("kept", "dirty", "run", "swap"))
    assert parts == pytest.approx(found.bytes, rel=0.05)


def explained(code: str, *arguments: object, count: int = 1, **options: Any) -> Explanation:
    """Explain processes that have run `code`."""
    with Watched(code, *arguments, count=count) as group:
        return oc.explain(group.pids, **options)


@pytest.fixture
def weights(tmp_path):
    np.save(tmp_path / "weights.npy", np.random.default_rng(1).random(5_000_000))
    return tmp_path / "weights.npy"


def test_copies_of_a_file_are_found_with_their_remedy(weights):
    with Watched(LOAD, weights, weights, count=2) as group:
        found = oc.explain(group.pids)
        assert found.copies == pytest.approx(twice_in(group.pids), rel=0.01)
    cause, nbytes = only(found, "copies", str(weights)), weights.stat().st_size
    assert (cause.times, cause.bad) == (4, True)
    assert cause.bytes == pytest.approx(4 * nbytes, rel=0.01)
    assert found.copies == pytest.approx(3 * nbytes, rel=0.05)
    assert found.error == 0
    assert found.remedy.startswith("Start them with\n  onecopy run -- python")
    assert found.remedy.endswith('numpy.load(path, mmap_mode="r")')
    own = remedies.RUN_BYTES + 2 * remedies.PER_PROCESS_BYTES
    assert found.expected == pytest.approx(found.bytes - 3 * nbytes + own, rel=0.05)
    assert sum(one.copies for one in found.processes) == pytest.approx(found.copies, rel=0.01)
    assert_each_byte_is_reported_once(found)
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith('2 processes of "python')


def test_files_that_run_cannot_share_are_not_part_of_its_remedy(weights, tmp_path):
    (tmp_path / "words.txt").write_bytes(os.urandom(30_000_000))
    code = f"{LOAD}    text = open(sys.argv[-1], 'rb').read()\n"
    alone = explained(code.replace("argv[1:]", "argv[1:1]"), tmp_path / "words.txt", count=2)
    assert alone.remedy.startswith("words.txt: ")
    assert alone.expected == pytest.approx(alone.bytes - 30_000_000, rel=0.05)
    both = explained(code.replace("argv[1:]", "argv[1:-1]"), weights, tmp_path / "words.txt", count=2)
    own = remedies.RUN_BYTES + 2 * remedies.PER_PROCESS_BYTES
    assert both.expected == pytest.approx(both.bytes - weights.stat().st_size + own, rel=0.05)


@pytest.mark.parametrize(("held", "extra"), [([100, 100], 100), ([40, 60], 40), ([250], 150), ([70], 0), ([0, 100], 0)])
def test_one_copy_of_a_file_is_no_extra_one(held, extra):
    assert copies.FileCopies("file", 100, tuple(enumerate(held))).extra == extra


def test_a_random_part_of_the_pages_gives_an_estimate(weights):
    with Watched(LOAD, weights, count=3) as group:
        exact = oc.explain(group.pids)
        some = [oc.explain(group.pids, seconds=0.005) for _ in range(5)]
    for one in some:
        assert "of the private pages were compared, chosen at random" in one.notes[0]
        assert one.error > 0
        assert abs(one.copies - exact.copies) < 3 * one.error
        assert one.bytes == pytest.approx(exact.bytes, rel=0.02)


FORMATS = {
    "numpy": ("numpy.savez(path, other=numpy.arange(77), data=data)", "numpy.load(path)['data']"),
    "pickle": ("pickle.dump({'name': 'odd', 'data': data}, open(path, 'wb'))", "pickle.load(open(path, 'rb'))"),
    "safetensors.numpy": (
        "safetensors.numpy.save_file({'one': data[:1003], 'two': data[1003:].copy()}, path)",
        "safetensors.numpy.load_file(path)",
    ),
    "torch": (
        "torch.save({'one': torch.from_numpy(data[:1003].copy()), 'two': torch.from_numpy(data)}, path)",
        "torch.load(path)",
    ),
}
"""How a package writes data behind something else, and reads it."""


@pytest.mark.parametrize("package", FORMATS)
def test_a_file_is_found_at_any_alignment(tmp_path, package):
    pytest.importorskip(package)
    (write, read), path = FORMATS[package], tmp_path / "data.npz"
    head = f"import numpy, sys, {package}\npath = sys.argv[1]\n"
    code = f"{head}data = numpy.random.default_rng(3).random(1_000_000)\n{write}"
    subprocess.run([sys.executable, "-c", code, path], check=True)
    cause = only(explained(f"{head}held = {read}", path, count=2), "copies", str(path))
    assert cause.bytes == pytest.approx(2 * 8_000_000, rel=0.02)


def test_a_file_is_found_where_the_processes_name_it(weights, tmp_path, monkeypatch):
    """In a command line, an environment, a working folder, or a folder that the caller names; and otherwise not."""
    code = "import numpy, sys\nheld = numpy.load(sys.stdin.readline().strip())\nprint(1, flush=True)\nsys.stdin.read()"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    links = tmp_path / "links" / "deep"
    links.mkdir(parents=True)
    (links / "model.npy").symlink_to(weights)
    (links / "loop").symlink_to(links)
    os.mkfifo(links / "pipe")
    (links / "unreadable").write_bytes(bytes(2 * MIB))
    (links / "unreadable").chmod(0)
    environment = {**os.environ, "MODEL_FOLDER": str(links.parent)}
    for words, settings, options in (
        ((), {"cwd": links}, {}),
        ((f"--model={links.parent}",), {"cwd": elsewhere}, {}),
        (("../links",), {"cwd": elsewhere}, {}),
        ((), {"env": environment, "cwd": elsewhere}, {}),
        ((), {"cwd": elsewhere}, {"look_in": [str(links)]}),
        ((), {"cwd": elsewhere}, {}),
    ):
        with talking(code, *words, **settings) as child:
            print(weights, file=child.stdin, flush=True)
            child.stdout.readline()
            found = oc.explain(child.pid, **options)
        is_named = settings != {"cwd": elsewhere} or bool(options) or bool(words)
        assert len(of_code(found, "copies")) == is_named, (words, settings)
    assert found.remedy == ""


def test_a_candidate_that_shrinks_or_goes_is_no_error(weights, monkeypatch):
    def gone(*_, **__):
        yield candidates.Candidate("/gone", "/gone", MIB)
        yield candidates.Candidate("/short", str(weights), 100 * weights.stat().st_size)

    monkeypatch.setattr("onecopy.memory.copies.candidates", gone)
    assert explained(LOAD, weights).bytes > 0


def test_huge_pages_are_compared_and_stay_huge():
    code = """
        import mmap, random
        memory = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE)
        memory.madvise(mmap.MADV_HUGEPAGE)
        memory[:] = random.Random(5).randbytes(len(memory))
    """
    with Watched(code, count=2) as group:
        before = [proc.rollup(pid).anon_huge_pages for pid in group.pids]
        found = oc.explain(group.pids)
        assert [proc.rollup(pid).anon_huge_pages for pid in group.pids] == before
    assert found.copies >= 16 * MIB
    if not all(before):
        pytest.skip("the kernel gives no huge pages")


def test_private_pages_of_hugetlbfs_count():
    setting = Path("/proc/sys/vm/nr_hugepages")
    if os.geteuid() or not setting.exists():
        pytest.skip("only root can reserve pages of hugetlbfs")
    reserved = setting.read_text()
    setting.write_text(str(int(reserved) + 16))
    try:
        if int(setting.read_text()) < int(reserved) + 16:
            pytest.skip("there is no memory for pages of hugetlbfs")
        code = """
            import mmap, random
            memory = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)
            memory[:] = random.Random(5).randbytes(len(memory))
        """
        found = explained(code, count=2)
    finally:
        setting.write_text(reserved)
    assert found.copies >= 16 * MIB
    assert found.bytes >= 32 * MIB


def test_a_file_of_equal_bytes_hides_no_other_and_two_equal_files_are_not_more_than_the_memory(weights, tmp_path):
    (tmp_path / "ones").write_bytes(b"\1" * (64 * MIB))
    found = explained(LOAD + "    ones = bytearray(b'\\1') * (8 << 20)\n", weights, look_in=[str(tmp_path / "ones")])
    assert only(found, "copies", str(weights)).times == 1
    assert only(found, "copies", "other copies").bytes == pytest.approx(8 * MIB, rel=0.05)
    (tmp_path / "longer").write_bytes(b"x" * 4096 + weights.read_bytes())
    found = explained(LOAD, weights, look_in=[str(tmp_path / "longer")])
    assert sum(one.bytes for one in of_code(found, "copies")) == pytest.approx(weights.stat().st_size, rel=0.05)


def test_pages_of_zeros_are_no_copies_and_are_reported_once():
    found = explained("data = bytearray(50_000_000)\nfor at in range(0, len(data), 4096): data[at] = 0", count=2)
    assert only(found, "zeros").bytes == pytest.approx(2 * 50_000_000, rel=0.05)
    assert found.copies < 8 * MIB
    assert_each_byte_is_reported_once(found)


def test_a_file_in_another_mount_namespace_is_found(weights, tmp_path):
    if os.geteuid():
        pytest.skip("only root can mount")
    inner = tmp_path / "inner"
    inner.mkdir()
    code = f"import numpy\nheld = numpy.load('{inner}/model.npy')\nprint(1, flush=True)\nimport sys\nsys.stdin.read()"
    mount = f'mount -t tmpfs none {inner} && cp {weights} {inner}/model.npy && exec "$0" -c "$1" {inner}/model.npy'
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, sys.executable, code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        found = oc.explain(child.pid)
        child.stdin.close()
    assert only(found, "copies", f"{inner}/model.npy").bytes == pytest.approx(weights.stat().st_size, rel=0.02)


def test_a_mapped_file_is_page_cache_until_it_is_written_to_in_a_private_mapping(cold_file):
    path = cold_file(64 * MIB, "weights.bin")
    found = explained(MAP + TOUCH_ALL, path, count=3)
    assert 64 * MIB <= only(found, "cache", "weights.bin").bytes < 80 * MIB, "once"
    assert not found.bad
    code = """
        import mmap, sys
        file = open(sys.argv[1], "rb")
        memory = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        for at in range(0, 32 << 20, 4096):
            memory[at : at + 8] = at.to_bytes(8)
    """
    found = explained(code, path)
    assert only(found, "written").bad
    assert only(found, "written").bytes == pytest.approx(32 * MIB, rel=0.01)
    assert "writes to mapped data in place" in found.remedy


def test_memory_that_a_fork_shares_is_no_copy_until_it_is_copied():
    with Watched(FORK, after=WRITE) as group:
        (parent,) = group.pids
        pids = [parent, *children_of(parent)]
        before = oc.explain(pids)
        assert sum(proc.rollup(pid).uss for pid in pids) < 8 * MIB, "reading has not made the kernel copy pages"
        group.go_on()
        after = oc.explain(pids)
    assert before.copies < 8 * MIB
    assert sum(one.private for one in before.processes) < 35 * MIB
    assert only(before, "forked", "shared").bytes > 35 * MIB
    assert not before.bad
    copied = only(after, "forked", "copied")
    assert copied.bytes == pytest.approx(20 * MIB, rel=0.2)
    assert copied.bad
    assert "oc.share" in after.remedy


@needs_memory_files
@pytest.mark.parametrize("is_mapped", [True, False])
def test_a_file_in_memory_counts_once_even_if_nobody_maps_it(is_mapped):
    code = f"""
        import mmap, os, signal
        descriptor = os.memfd_create("numbers")
        os.ftruncate(descriptor, 64 << 20)
        memory = mmap.mmap(descriptor, 64 << 20)
        touch(memory)
        if not {is_mapped}:
            memory.close()
        else:
            started = os.pipe()
            if os.fork() == 0:
                touch(memory)
                os.write(started[1], b".")
                signal.pause()
            os.read(started[0], 1)
    """
    with Watched(code) as group:
        found = oc.explain([*group.pids, *children_of(group.pids[0])])
    assert only(found, "shmem", "numbers").bytes == pytest.approx(64 * MIB, rel=0.01)


def test_this_process_is_explained_without_an_argument_and_knows_what_its_allocator_keeps(python):
    found = oc.explain()
    assert [one.pid for one in found.processes] == [os.getpid()]
    assert found.bytes > found.processes[0].private > 0
    assert pickle.loads(pickle.dumps(found)) == found
    text = python("""
        import onecopy as oc
        held = [bytearray(5000) for _ in range(20000)]
        del held[1::2]
        print(sum(one.bytes for one in oc.explain().causes if one.code == "kept"))
    """)
    if not int(text):
        pytest.skip("this C library does not tell what is free")
    assert int(text) > 40 * MIB


def test_swapped_out_pages_are_reported_and_stay_there(tmp_path):
    if os.geteuid() or not os.path.exists("/sbin/swapon"):  # noqa: PTH110
        pytest.skip("only root can add swap space")
    swap = tmp_path / "swap"
    swap.write_bytes(bytes(96 * MIB))
    swap.chmod(0o600)
    subprocess.run(["/sbin/mkswap", swap], check=True, capture_output=True)
    if subprocess.run(["/sbin/swapon", swap], check=False, capture_output=True).returncode:
        pytest.skip("this machine does not allow swap space")
    try:
        code = """
            import mmap
            memory = mmap.mmap(-1, 48 << 20, flags=mmap.MAP_PRIVATE)
            for at in range(0, len(memory), 4096):
                memory[at : at + 8] = at.to_bytes(8)
            memory.madvise(21)  # MADV_PAGEOUT
        """
        with Watched(code) as group:
            before = proc.status(group.pids[0]).vm_swap
            found = oc.explain(group.pids)
            assert proc.status(group.pids[0]).vm_swap == pytest.approx(before, abs=MIB)
        if not before:
            pytest.skip("the kernel swaps nothing out")
        assert only(found, "swap").bytes == pytest.approx(before, rel=0.05)
        assert "swapped out" in found.remedy
    finally:
        subprocess.run(["/sbin/swapoff", swap], check=True)


def test_a_process_that_waits_in_the_kernel_is_skipped():
    """A parent waits without interruption until its child, made by vfork, has ended."""
    number = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine)
    if number is None:
        pytest.skip("the number of the system call clone is not known here")
    flags = 0x4000 | signal.SIGCHLD  # CLONE_VFORK
    code = f"""
        import ctypes, signal
        print("ready", flush=True)
        if ctypes.CDLL(None).syscall({number}, {flags}, 0, 0, 0, 0) == 0:
            signal.pause()
    """
    with Watched("") as group, talking(code) as child:
        child.stdout.readline()
        while proc.stat(child.pid).state != "D":
            pass
        found = oc.explain([*group.pids, child.pid])
        for pid in children_of(child.pid):
            os.kill(pid, signal.SIGKILL)
    assert [one.pid for one in found.processes] == group.pids
    assert "waiting in the kernel (state D)" in found.notes[0]


def test_memory_that_waits_for_a_user_is_not_read():
    """Reading a page that is registered with userfaultfd would wait for its handler."""
    regions = [one for one in proc.smaps(os.getpid()) if one.memory.anonymous]
    fake = [replace(one, vm_flags=("um",)) for one in regions]
    assert copies.find({os.getpid(): fake}).data == {os.getpid(): 0}


def test_ended_processes_are_skipped_and_alone_an_error(nobody, in_child):
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    with Watched("") as group:
        found = oc.explain([*group.pids, zombie.pid, 2])
        assert [one.pid for one in found.processes] == group.pids
        assert len(found.notes) == 1
        with pytest.raises(PermissionError, match="belongs to another user"):
            in_child(oc.explain, group.pids[0], uid=nobody)
        pid = group.pids[0]
    zombie.wait()
    with pytest.raises(ProcessLookupError):
        oc.explain(pid)


def test_without_the_permission_to_trace_the_rest_is_explained(weights, monkeypatch):
    class Refusing(copies.EqualPages):
        added = 0

        def add(self, *_):
            self.added += 1
            raise PermissionError(1, "Operation not permitted", "/proc/1/mem")

        def compare(self):
            return [(0.0, 0.0)] * self.added

    monkeypatch.setattr("onecopy.memory.copies.EqualPages", Refusing)
    found = explained(LOAD, weights, count=2)
    assert found.copies is None
    assert "copies of the same bytes is unknown" in str(found).replace("\n", " ")
    assert "permission to trace" in found.notes[-1]
    assert only(found, "heap").bytes > 2 * weights.stat().st_size


def test_the_observed_processes_go_on_and_do_not_grow(weights):
    """Reading faults nothing in: not the untouched pages of a mapping of 64 GiB either."""
    code = """
        import mmap
        memory = mmap.mmap(-1, 1 << 36, flags=mmap.MAP_PRIVATE | 0x4000)
        memory[5 << 30] = 1
        count = 0
    """
    with Watched(code, after="count += 1") as group:
        before = proc.status(group.pids[0]).vm_rss
        explained = threading.Thread(target=oc.explain, args=(group.pids,))
        explained.start()
        group.go_on()
        explained.join()
        assert proc.status(group.pids[0]).vm_rss - before < MIB


def test_of_many_processes_those_with_the_most_memory_are_explained(monkeypatch, weights):
    monkeypatch.setattr(explaining, "MAX_PROCESSES", 1)
    with Watched("", count=2) as others, Watched(LOAD, weights) as group:
        found = oc.explain([*others.pids, *group.pids])
    assert [one.pid for one in found.processes] == group.pids
    assert found.notes[0].startswith("2 processes not examined")


def verb(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "onecopy", "explain", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)


@pytest.mark.slow
def test_the_verb_finds_processes_and_reports_problems_by_its_status(weights, tmp_path):
    own_name = f"worker{os.getpid()}"
    script = tmp_path / f"{own_name}.py"
    script.write_text("import numpy, sys, os\nheld = numpy.load(sys.argv[1])\nprint(1, flush=True)\nsys.stdin.read()")
    with contextlib.ExitStack() as ended:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        workers = [subprocess.Popen([sys.executable, script, weights], **pipes) for _ in range(3)]
        for one in workers:
            ended.callback(one.communicate)
            one.stdout.readline()
        for found in (verb(own_name), verb(*(one.pid for one in workers)), verb(f"{own_name}.py", "--details")):
            assert found.returncode == 3, found.stderr
            assert "3 x 40.0 MB   private copies of" in found.stdout
            assert f"onecopy run -- python {script} {weights}"[:60] in found.stdout.replace("\n", "")
        assert f"\n{workers[0].pid} " in found.stdout.replace("\n ", "\n")
        group = proc.process_text(workers[0].pid, "cgroup").splitlines()[-1].rpartition(":")[2]
        assert verb("--cgroup", group, "--seconds", "0.1").returncode in (0, 3)
        assert verb("--children", os.getpid(), "--fail-on", "swap").returncode == 0
        assert verb(own_name, "--fail-on", "heap", "--json").returncode == 3
        assert verb(own_name, "--fail-on", "everything").returncode == 2
    assert verb(own_name).returncode == 1
    assert "no process runs a program called" in verb(own_name).stderr
    assert verb(workers[0].pid).returncode == 1
    assert verb("--after", "1s", "1").returncode == verb().returncode == verb("1", "--", "true").returncode == 2


@pytest.mark.slow
def test_the_verb_explains_a_command(weights, tmp_path):
    program = tmp_path / "pool.py"
    program.write_text(
        "import multiprocessing, numpy, sys, time\n"
        "def load(path):\n    data = numpy.load(path)\n    time.sleep(float(sys.argv[2]))\n    return len(data)\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(3) as pool:\n"
        "        print(pool.map(load, [sys.argv[1]] * 3, chunksize=1))\n"
        "    sys.exit(7)\n"
    )
    command = [sys.executable, program, weights]
    whole = verb("--", *command, 3)
    assert (whole.returncode, whole.stdout) == (7, "[5000000, 5000000, 5000000]\n")
    assert "3 x 40.0 MB   private copies of" in whole.stderr
    part = verb("--after", "3s", "--", *command, 100)
    assert part.returncode == 3
    assert "3 x 40.0 MB   private copies of" in part.stdout
    assert verb("--", "no such program").returncode == 127
    assert "before its memory could be examined" in verb("--", "true").stderr
