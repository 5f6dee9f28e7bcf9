"""Sealed arrays in other processes, forked children, and the memory that all of it costs, as the kernel counts it."""

import multiprocessing
import os
import pickle
from multiprocessing.connection import Connection

import numpy  # noqa: F401, ICN001 - loaded before memory is measured
import pytest

import onecopy as oc
from onecopy.memory import proc

pytestmark = pytest.mark.usefixtures("reserving")

MIB = 1 << 20
SIZE = 64 * MIB


def look(connection: Connection) -> None:
    """In a child: open what is sent, touch all of it, say what it is and costs, and try to write."""
    before = proc.rollup(os.getpid())
    sealed = pickle.loads(connection.recv_bytes())
    total = int(sealed.array.sum(dtype="u8"))
    after = proc.rollup(os.getpid())
    try:
        sealed.array[0] = 1
        written = "written"
    except ValueError:
        written = "refused"
    connection.send((total, after.uss - before.uss, after.pss - before.pss, written))
    connection.recv()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_sealed_array_costs_other_processes_nothing(tmp_path, method):
    ours = oc.scratch(SIZE, "u1", tmp_path)
    ours.write(None, 3)
    sealed = ours.seal()
    assert int(sealed.array.sum(dtype="u8")) == 3 * SIZE  # mapped here too, so that its pages are halved in Pss
    context = multiprocessing.get_context(method)
    here, there = context.Pipe()
    child = context.Process(target=look, args=(there,), daemon=True)
    child.start()
    here.send_bytes(pickle.dumps(sealed))
    assert here.poll(60)
    total, private, proportional, written = here.recv()
    assert (total, written) == (3 * SIZE, "refused")
    assert private < 4 * MIB
    assert proportional < SIZE / 2 + 4 * MIB
    shared = ours.memory().shared
    assert shared is not None
    here.send("end")
    child.join(60)
    assert child.exitcode == 0


def attach_and_pass_on(connection: Connection) -> None:
    sealed = pickle.loads(connection.recv_bytes())
    connection.send_bytes(pickle.dumps(sealed))
    connection.recv()


def test_who_was_given_it_can_give_it_on_when_the_owner_is_gone(tmp_path):
    here, there = multiprocessing.Pipe()
    with oc.scratch(1000, "u1", tmp_path) as ours:
        ours.write(None, 8)
        child = multiprocessing.get_context("spawn").Process(target=attach_and_pass_on, args=(there,), daemon=True)
        child.start()
        with ours.seal() as sealed:
            here.send_bytes(pickle.dumps(sealed))
            handle = here.recv_bytes()
    again = pickle.loads(handle)
    assert (again.array == 8).all()
    again.close()
    here.send("end")
    child.join(60)
    with pytest.raises(FileNotFoundError, match=f"process {child.pid} has ended"):
        pickle.loads(handle)


def test_a_view_that_was_kept_cannot_change_what_is_sealed(tmp_path, in_child):
    ours = oc.scratch((4, MIB), "u1", tmp_path)
    kept = ours.array[1:]
    sealed = ours.seal()

    def write() -> None:
        kept[:] = 5

    with pytest.raises(Exception, match=r"^SIGSEGV$"):
        in_child(write)
    assert not sealed.array.any()
    assert not kept.any()  # reading goes on


def test_a_handle_survives_that_the_array_is_saved_meanwhile(tmp_path):
    with oc.scratch((3, 5), "f4", tmp_path) as ours:
        ours.write(None, 2.5)
        handle = pickle.dumps(ours.seal())
        ours.save(tmp_path / "x.safetensors")
        assert (pickle.loads(handle).array == 2.5).all()
        assert not ours.seal().core.changed()
