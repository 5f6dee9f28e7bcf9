"""Temporary paths of files and folders that are being written."""

import os
from pathlib import Path

from onecopy_images.atomic_files import path_beside


def test_two_threads_of_a_process_write_one_target_under_different_names(tmp_path):
    target = tmp_path / "target"
    first = path_beside(target)
    first.write_text("being written")
    assert path_beside(target) != first
    assert first.exists()


def test_what_a_killed_process_left_is_removed_and_what_others_write_is_not(tmp_path):
    target = tmp_path / "target"
    child = os.fork()
    if child == 0:
        path_beside(target).write_text("left")
        os._exit(0)
    os.waitpid(child, 0)
    [left] = tmp_path.iterdir()
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    assert f"{namespace:x}-{child}" in left.name
    foreign = left.with_name(left.name.replace(f"{namespace:x}", f"{namespace + 1:x}"))
    foreign.write_text("a process that has this PID in another namespace writes it")
    parents = left.with_name(left.name.replace(f"-{child}-", f"-{os.getppid()}-"))
    parents.write_text("a running process writes it")
    path_beside(target)
    assert set(tmp_path.iterdir()) == {foreign, parents}
