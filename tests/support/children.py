"""Child processes: a fresh interpreter, a fork whose answer comes back, and what is known of a process from outside."""

import contextlib
import ctypes
import faulthandler
import functools
import io
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.waiting import PATIENCE

CHILD_SECONDS = 100
"""How long a child may take, unless a test gives it more."""


def finished(command: Sequence[str | Path], **settings: Any) -> str:
    """Run a command, which must end with status 0; return its standard output."""
    settings = {"timeout": CHILD_SECONDS, **settings}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **settings)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_python(code: str, *arguments: object) -> str:
    """Run `code` in a fresh interpreter with warnings as errors; return its standard output."""
    return finished([sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)])


@contextlib.contextmanager
def talking(code: str, *arguments: object, **settings: Any) -> Iterator[subprocess.Popen[str]]:
    """Run `code` in a fresh interpreter with warnings as errors, and pipes to talk to it; killed at the end."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)]
    settings |= {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **settings) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def python() -> Callable[..., str]:
    """Give `run_python`: (code, *arguments) -> standard output."""
    return run_python


@pytest.fixture
def onecopy_process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Give a function (*arguments, env={}, **settings of subprocess.run) that runs the command `onecopy`."""

    def run(*arguments: str | Path, **settings: Any) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if k not in {"COLUMNS", "ONECOPY_TRACEBACK"}}
        environment |= settings.pop("env", {})
        command = [sys.executable, "-m", "onecopy", *map(str, arguments)]
        settings = {"timeout": CHILD_SECONDS, **settings}
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, **settings)

    return run


@pytest.fixture
def onecopy_command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Give a function like that of `onecopy_process`, without `env`, which runs the command in this process: faster."""

    def run(*arguments: object, cwd: Path | None = None, columns: int = 80) -> subprocess.CompletedProcess[str]:
        from onecopy.cli import command_line

        out, err = io.StringIO(), io.StringIO()
        with monkeypatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            patch.setenv("COLUMNS", str(columns))
            patch.delenv("ONECOPY_TRACEBACK", raising=False)
            if cwd is not None:
                patch.chdir(cwd)
            words = [str(argument) for argument in arguments]
            return_code = command_line.run(words)
        return subprocess.CompletedProcess(words, return_code, out.getvalue(), err.getvalue())

    return run


class ChildKilledError(Exception):
    """A child died of a signal before it answered; the message is the signal's name."""


class ChildAnswerError(Exception):
    """A child gave no answer that its parent can read: it left without one, or it cannot be pickled."""


def call_in_child(
    function: Callable[..., Any], *arguments: Any, uid: int | None = None, seconds: int = CHILD_SECONDS
) -> Any:
    """Call a function in a forked child and return what it returns.

    An exception is raised again in the parent, with the child's traceback as a note. `uid`: become this user first.
    `seconds`: end the child by SIGALRM after that.
    ChildKilledError: the child died of a signal. ChildAnswerError: the answer cannot be pickled, or the child left.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        with contextlib.suppress(BaseException):  # whatever happens, the child runs nothing of its parent's
            signal.alarm(seconds)
            _answer(write_end, function, arguments, uid)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        text = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status < 0:
        raise ChildKilledError(signal.Signals(-status).name)
    if not text:
        raise ChildAnswerError(f"the child left with status {status} and no answer")
    good, answer, trace = pickle.loads(text)
    if not good:
        answer.add_note(f"in the child:\n{trace}")
        raise answer
    return answer


def _answer(pipe: int, function: Callable[..., Any], arguments: tuple[Any, ...], uid: int | None) -> None:
    faulthandler.disable()  # some children are meant to die of a signal, without a report
    good, answer, trace = True, None, ""
    try:
        if uid is not None:
            become(uid)
        answer = function(*arguments)
    except BaseException as error:
        good, answer, trace = False, error, traceback.format_exc()
    try:
        text = pickle.dumps((good, answer, trace))
        pickle.loads(text)  # an exception of its own signature can be written and not read
    except Exception as error:
        what = f"an answer that cannot be pickled ({error}): {answer!r}" if good else f"raised {answer!r}\n{trace}"
        text = pickle.dumps((False, ChildAnswerError(what), trace))
    with os.fdopen(pipe, "wb") as file:
        file.write(text)


def in_a_child(test: Callable[..., object]) -> Callable[..., None]:
    """Run a whole test in a forked child, whose failures, skips and signals are those of the test."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        call_in_child(lambda: (test(*arguments, **named), None)[1])

    return run


def facts(report: object) -> SimpleNamespace:
    """Copy the numbers of a report, which cannot be pickled itself."""
    return SimpleNamespace(**{name: getattr(report, name) for name in dir(report) if not name.startswith("_")})


@pytest.fixture
def in_child() -> Callable[..., Any]:
    """Give `call_in_child`: (function, *arguments, uid=None, seconds=100)."""
    return call_in_child


def fork(work: Callable[[], Any]) -> int:
    """Call `work` in a forked process and return its pid; it exits with 0 if that was true, 2 if not, 130 on Ctrl-C."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(int(PATIENCE))
            status = 0 if work() else 2
        except KeyboardInterrupt:
            status = 130
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return pid


def become(user: int, *groups: int) -> None:
    """Become another user in some groups, as after exec: /proc/self belongs to this user."""
    os.setgroups(groups)
    os.setgid(groups[0] if groups else user)
    os.setuid(user)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE


@contextlib.contextmanager
def forked(work: Callable[[], Any]) -> Iterator[int]:
    """Call `work` in a forked process, which is killed at the end of the block; give its pid."""
    pid = fork(work)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        status_of(pid)


def status_of(pid: int) -> int:
    """Wait for a child; return its exit status, or minus the number of the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def is_alive(pid: int) -> bool:
    """Report whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children_of(pid: int) -> list[int]:
    """List the pids of a process's children, zombies included; none where the process is gone."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def orphans() -> list[int]:
    """List the processes that this session started and whose parent has ended: they have its mount namespace.

    None where the session has the namespace of the machine (`support/isolation.py`): nothing distinguishes them there.
    """
    own = _namespace(os.getpid())
    if own == _namespace(1):
        return []
    parents = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - a Path for each process takes longer than the rest
        if entry.isdigit() and int(entry) != os.getpid() and _namespace(int(entry)) == own:
            with contextlib.suppress(OSError):
                parents[int(entry)] = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
    return [pid for pid, parent in parents.items() if parent not in parents and parent != os.getpid()]


def _namespace(pid: int) -> int:
    """Return the inode of a process's mount namespace; 0: that cannot be read."""
    try:
        return os.stat(f"/proc/{pid}/ns/mnt").st_ino  # noqa: PTH116 - called for each process of the machine
    except OSError:
        return 0


def descendants_of(pid: int) -> list[int]:
    """List the processes below a process, parents before their children."""
    found = children_of(pid)
    for one in found:
        found += children_of(one)
    return found


def descriptors() -> list[str]:
    """List what this process has open, by name; an unlinked file by the name that it had."""
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the numbers themselves
        with contextlib.suppress(OSError):
            # What a forked child inherits of a waiting thread may lose its name meanwhile.
            found.append(os.readlink(f"/proc/self/fd/{name}").removesuffix(" (deleted)"))  # noqa: PTH115
    return sorted(found)


@contextlib.contextmanager
def killed_at_the_end(pids: list[int]) -> Iterator[None]:
    """Kill processes that may not be children of this one, however the block ends."""
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
