"""Refuse system calls to this process and its children, as an old kernel or a container's policy does.

A filter of seccomp(2), assembled here: it stays until the process ends, survives exec and fork, and needs no privilege.
Whole calls are named as in the manual ("cachestat"); `PARTIAL` names what is refused only for some arguments.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator
from typing import NamedTuple

# Calls by machine: (x86_64, aarch64), from the kernel's tables; None where the machine never had the call.
NUMBERS = {
    "cachestat": (451, 451),
    "clone": (56, 220),
    "clone3": (435, 435),
    "fallocate": (285, 47),
    "fcntl": (72, 25),
    "flock": (73, 32),
    "fsync": (74, 82),
    "ioctl": (16, 29),
    "linkat": (265, 37),
    "madvise": (28, 233),
    "memfd_create": (319, 279),
    "open": (2, None),
    "openat": (257, 56),
    "process_vm_readv": (310, 270),
    "pwrite64": (18, 68),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "sync_file_range": (277, 84),
}
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH_*


class Refusal(NamedTuple):
    """One call; with an argument, only where its low 32 bits under `mask` are `value`."""

    call: str
    argument: int | None = None
    mask: int = 0xFFFF_FFFF
    value: int = 0
    error: int = errno.ENOSYS  # what a kernel without it says


def opening(flag: int, error: int) -> list[Refusal]:
    """Refuse a flag of open; openat2 hides its flags behind a pointer, and nothing here uses it."""
    return [Refusal("open", 1, flag, flag, error), Refusal("openat", 2, flag, flag, error)]


PARTIAL = {
    "F_OFD_SETLK": [Refusal("fcntl", 1, value=command, error=errno.EINVAL) for command in (36, 37)],  # and F_OFD_GETLK
    "MADV_COLLAPSE": [Refusal("madvise", 2, value=25, error=errno.EINVAL)],
    "MADV_HUGEPAGE": [Refusal("madvise", 2, value=14, error=errno.EINVAL)],
    "MADV_POPULATE_READ": [Refusal("madvise", 2, value=22, error=errno.EINVAL)],
    "O_DIRECT": opening(os.O_DIRECT, errno.EINVAL),
    "O_TMPFILE": opening(os.O_TMPFILE, errno.EOPNOTSUPP),
    "PAGEMAP_SCAN": [Refusal("ioctl", 1, value=0xC060_6610, error=errno.ENOTTY)],
    # CLONE_THREAD: processes may be made, threads may not; clone3 has its flags behind a pointer, so it goes whole.
    "threads": [Refusal("clone3"), Refusal("clone", 0, 0x10000, 0x10000, errno.EAGAIN)],
}

LOAD, AND, JUMP_IF_EQUAL, RETURN = 0x20, 0x54, 0x15, 0x06  # BPF_LD|W|ABS, BPF_ALU|AND|K, BPF_JMP|JEQ|K, BPF_RET|K
ALLOW, ERRNO = 0x7FFF_0000, 0x0005_0000  # SECCOMP_RET_*
CALL_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16  # in struct seccomp_data; both machines are little-endian


def instruction(code: int, operand: int, otherwise: int = 0) -> bytes:
    """Assemble one; a jump that is not taken skips `otherwise` instructions."""
    return struct.pack("<HBBI", code, 0, otherwise, operand)


def refusals_of(names: tuple[str, ...]) -> Iterator[Refusal]:
    """Resolve names; an unknown one is a KeyError."""
    for name in names:
        if name not in PARTIAL and name not in NUMBERS:
            raise KeyError(f"unknown: {name}; known: {', '.join(sorted([*NUMBERS, *PARTIAL]))}")
        yield from PARTIAL.get(name) or [Refusal(name)]


def assemble(names: tuple[str, ...], error: int | None, machine: str) -> bytes:
    """Make the filter's program: rule after rule, each of which ends the filter or falls through to the next."""
    column, architecture = MACHINES[machine]
    rules: list[bytes] = []
    for refusal in refusals_of(names):
        number = NUMBERS[refusal.call][column]
        if number is None:
            continue
        body = [instruction(RETURN, ERRNO | (refusal.error if error is None else error))]
        if refusal.argument is not None:
            body = [
                instruction(LOAD, ARGUMENTS_AT + 8 * refusal.argument),
                instruction(AND, refusal.mask),
                instruction(JUMP_IF_EQUAL, refusal.value, otherwise=1),
                *body,
            ]
        rules += [instruction(LOAD, CALL_AT), instruction(JUMP_IF_EQUAL, number, otherwise=len(body)), *body]
    for_this_machine = instruction(JUMP_IF_EQUAL, architecture, otherwise=len(rules))
    return b"".join([instruction(LOAD, ARCHITECTURE_AT), for_this_machine, *rules, instruction(RETURN, ALLOW)])


def refuse(*names: str, error: int | None = None) -> None:
    """Refuse these calls from now on, in this process and those it starts.

    `names`: calls (`NUMBERS`), and what is refused for some arguments only (`PARTIAL`). `error`: the errno of every
    refusal; None: what a kernel says that does not know the call or the argument. KeyError: a name, or this machine, is
    not in the tables.
    """
    program = assemble(names, error, platform.machine())
    buffer = ctypes.create_string_buffer(program, len(program))
    filter_of = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))  # struct sock_fprog
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    no_new_privileges, set_seccomp, mode_filter = 38, 22, 2
    for arguments in ((no_new_privileges, 1, 0, 0, 0), (set_seccomp, mode_filter, filter_of, 0, 0)):
        if prctl(*(ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_ulong(a) for a in arguments)) != 0:
            raise OSError(ctypes.get_errno(), f"prctl{arguments[:2]}")
