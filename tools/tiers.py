"""Run a tier of the tests, step by step: tools/tiers.py test | rest | nightly | coverage [--only STEP].

Steps run in their order, as many at a time as there are CPUs. Each prints a line: how it ended, how long it took, and
the last line of its output. build/tests/TIER keeps all output (STEP.log) and what each test did (STEP.json, .skips);
the output of a failed step is shown. After a failed step the others still run, except those that need its
output. Status 1 if one failed. What the tiers are for is described in tests/README.md.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ROOT / "build/tests"
"""It contains a folder for each tier."""
ASAN = "detect_leaks=0:allocator_may_return_null=1:handle_sigbus=0:handle_segv=0"
LSAN = "leak_check_at_exit=0:allocator_may_return_null=1:handle_sigbus=0:handle_segv=0"
SHOWN_LINES = 150
"""Lines of a failed step's output that are shown, after those that name what failed."""
FAILURE = re.compile(r"(FAILED|ERROR) |E   |\s*\d+ - .*\((Failed|Timeout|SEGFAULT|Subprocess aborted)|.*: error: ")
PROGRESS = re.compile(r"[.sxXFE]+ *\[ *\d+%\]$|(SKIPPED|XFAIL) ")

TIERS: dict[str, list[list[str]]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["onecopy"]["tests"]


@dataclass(frozen=True)
class Step:
    """A command that must end with status 0; `alone`: it uses all CPUs, and nothing else runs meanwhile."""

    name: str
    command: Sequence[str]
    needs: tuple[str, ...] = ()
    alone: bool = False


def make(name: str, target: str, *needs: str) -> Step:
    """Return a step that runs make for a target."""
    return Step(name, ["make", "--no-print-directory", target], needs, alone=True)


def pytest(
    folder: Path, name: str, tests: Sequence[str], marks: str, *more: str, python: Sequence[str] = (sys.executable,)
) -> Step:
    """Return a pytest session with its own results and cache, in the folder of its tier."""
    own = ["-o", f"cache_dir={folder}/cache-{name}", "--results", f"{folder}/{name}.json"]
    slowest = ["--durations=40", "--durations-min=2"]
    return Step(name, [*python, "-m", "pytest", "-q", *own, *slowest, "-m", marks, *more, *tests])


def fast(folder: Path) -> list[Step]:
    """List the steps of `make test`; the extension is built by make."""
    lanes = enumerate(TIERS["fast"], 1)
    skips = folder / "cpp.skips"
    skips.unlink(missing_ok=True)
    modules = ["ctest", "--test-dir", "build/python", "-L", "modules", "--output-on-failure"]
    return [
        make("build-cpp-tests", "module-tests"),
        replace(make("check", "check"), alone=False),  # mypy and most others use one CPU
        *(pytest(folder, f"python-{number}", tests, "not slow and not nightly") for number, tests in lanes),
        Step("cpp", ["env", f"ONECOPY_SKIPS={skips}", *modules], ("build-cpp-tests",)),
    ]


def rest(folder: Path) -> list[Step]:
    """List what `make test-all` runs after `make test`."""
    built = ("build-sanitized",)
    sessions = [FOLDERS / f"test/python-{number}.json" for number in range(1, len(TIERS["fast"]) + 1)]
    before = [word for session in sessions if session.exists() for word in ("--without-passed", str(session))]
    lanes = [
        pytest(folder, f"python-rest-{number}", tests, "not nightly", *before)
        for number, tests in enumerate(TIERS["fast"], 1)
    ]
    preload = " ".join(library(name) for name in ("libasan.so", "libubsan.so", "libstdc++.so"))
    python = str(ROOT / "build/dev/venv/bin/python")
    sanitized = ["env", f"LD_PRELOAD={preload}", f"ASAN_OPTIONS={ASAN}", "UBSAN_OPTIONS=print_stacktrace=1", python]
    leaks = ["env", f"LD_PRELOAD={preload}", f"ASAN_OPTIONS={LSAN}", "PYTHONMALLOC=malloc", python]
    refused = [sys.executable, "-m", "tests.fallbacks.run", "--refuse", "all", "--"]
    other_machine = ["--report"] if os.environ.get("SKIPS") == "report" else []
    return [
        make("build-sanitized", "sanitized"),
        # The longest first: what begins last should be short.
        pytest(folder, "frameworks", TIERS["frameworks"][0], "not nightly"),
        *reversed(lanes),
        replace(
            pytest(
                folder, "python-sanitized", TIERS["sanitized"][0], "not nightly and not unsanitized", python=sanitized
            ),
            needs=built,
        ),
        Step("cpp-sanitized", ["ctest", "--preset", "dev", "-LE", "nightly"], built),
        Step("leaks", [*leaks, "-m", "tests.support.leak_check"], built),
        Step("field", ["make", "--no-print-directory", "field"]),
        Step("cpp-refused", [*refused, "ctest", "--test-dir", "build/python", "-L", "modules", "--output-on-failure"]),
        make("tidy", "tidy-changed"),
        Step("skips", [sys.executable, "-m", "tests.support.ledger", *other_machine], alone=True),
    ]


def nightly(folder: Path) -> list[Step]:
    """List what runs before a release."""
    everywhere = [tests for lane in TIERS["fast"] for tests in lane]
    orders = [
        pytest(folder, f"order-{order}", everywhere, "not slow and not nightly", "--order", order)
        for order in ("reverse", "1", "2")
    ]
    kills = [*ROOT.glob("tests/processes/*/test_*_kills.py"), *ROOT.glob("packages/*/tests/test_*_kills.py")]
    killed = [*sorted(map(str, kills)), "tests/processes/store/test_store_exchange.py"]
    killed.append("tests/processes/page_cache/test_memory_limits.py")
    killed += ["tests/processes/arrays/test_interpreter_end.py", "tests/hostile/test_bombs.py"]
    killed.append("tests/hostile/test_mutations.py")
    torture = pytest(folder, "torture", killed, "not nightly", "--timeout=3600")
    tsan = ["env", f"LD_PRELOAD={library('libtsan.so')} {library('libstdc++.so')}", "TSAN_OPTIONS=halt_on_error=1"]
    return [
        make("tidy-all", "tidy"),
        make("threads-cpp", "tsan"),
        Step("threads-python", [*tsan, str(ROOT / "build/tsan/venv/bin/python"), "-m", "tests.support.threads"]),
        *orders,
        replace(torture, command=["env", "ONECOPY_TORTURE=1", *torture.command]),
        Step("long-run", [sys.executable, "-m", "tests.support.long_run", "--minutes", "10"]),
        pytest(folder, "python-nightly", everywhere, "nightly"),
        pytest(folder, "frameworks-nightly", TIERS["frameworks"][0], "nightly"),
        Step("conformance", [sys.executable, "-m", "tests.support.conformance"]),
        Step("fallbacks", [sys.executable, "-m", "tests.fallbacks.matrix"], alone=True),
        make("fuzz", "fuzz"),
        make("build-sanitized", "sanitized"),
        Step("consumers", ["ctest", "--preset", "dev", "-L", "nightly"], alone=True),
        make("docs", "docs"),
        make("dist", "dist"),
        make("check-dist", "check-dist"),
    ]


def coverage(folder: Path) -> list[Step]:
    """List what `make coverage` runs: all tests except the nightly ones, in an instrumented build."""
    profiles = ROOT / "build/coverage/profiles"
    profiles.mkdir(parents=True, exist_ok=True)
    counting = ["env", f"LLVM_PROFILE_FILE={profiles}/%m%c.profraw"]
    python = [*counting, str(ROOT / "build/coverage/venv/bin/python"), "-m", "coverage", "run"]
    sessions = zip(
        ("coverage-frameworks", "coverage-2", "coverage-1"),
        (*TIERS["frameworks"], *reversed(TIERS["fast"])),
        strict=True,
    )
    return [
        *(pytest(folder, name, tests, "not nightly", python=python) for name, tests in sessions),
        Step("cpp", [*counting, "ctest", "--preset", "coverage", "-LE", "nightly"]),
    ]


def library(name: str) -> str:
    """Return the path of a library of the compiler."""
    command = [os.environ.get("CXX", "c++"), f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def last_line(log: Path) -> str:
    """Return the last line with text, without its decoration."""
    lines = [line.strip(" =") for line in log.read_text(errors="replace").splitlines() if line.strip(" =")]
    return lines[-1][:100] if lines else ""


def report(step: Step, log: Path, status: int, seconds: float, cpu: float) -> None:
    """Print how a step ended; if it failed, also the lines that name a failure and the end of its output."""
    ended = "FAILED" if status else "ok"
    print(f"{ended:<7}{step.name:<18}{seconds:7.1f} s {cpu:6.0f} s of CPU  {last_line(log)}", flush=True)
    if status:
        lines = log.read_text(errors="replace").splitlines()
        found = [line for line in lines if FAILURE.match(line)]
        shown = [line for line in lines if not PROGRESS.match(line)][-SHOWN_LINES:]
        print("".join(f"    {line[:300]}\n" for line in (*found, *shown)), flush=True)


def run(steps: Sequence[Step], folder: Path) -> list[str]:
    """Run the steps in their order, as many at a time as there are CPUs; return the names of those that failed."""
    waiting, failed, cpus = list(steps), [], os.cpu_count() or 1
    running: list[tuple[Step, Path, float, subprocess.Popen[bytes]]] = []
    while waiting or running:
        for one in tuple(running):
            step, log, started, process = one
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                running.remove(one)
                process.returncode = os.waitstatus_to_exitcode(status)
                cpu = used.ru_utime + used.ru_stime
                report(step, log, process.returncode, time.monotonic() - started, cpu)
                if process.returncode:
                    failed.append(step.name)
        if waiting and set(waiting[0].needs) & set(failed):
            print(f"NOT RUN {waiting[0].name}: {', '.join(waiting[0].needs)} failed", flush=True)
            failed.append(waiting.pop(0).name)
        elif waiting and (not running or (len(running) < cpus and not waiting[0].alone and not running[0][0].alone)):
            step = waiting.pop(0)
            log = folder / f"{step.name}.log"
            with log.open("w") as file:
                process = subprocess.Popen(
                    step.command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
                )
            running.append((step, log, time.monotonic(), process))
        else:
            time.sleep(0.05)
    return failed


def main() -> int:
    """Run the steps that the command line selects."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tiers = {"test": fast, "rest": rest, "nightly": nightly, "coverage": coverage}
    parser.add_argument("tier", choices=tiers)
    parser.add_argument("--only", action="append", metavar="STEP", help="run this step; may be repeated")
    options = parser.parse_args()
    folder = FOLDERS / options.tier
    if not options.only:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    steps = [step for step in tiers[options.tier](folder) if not options.only or step.name in options.only]
    failed = run([replace(step, needs=()) if options.only else step for step in steps], folder)
    verdict = f"{', '.join(failed)} failed" if failed else "all passed"
    print(f"{options.tier}: {time.monotonic() - started:.0f} s, {verdict}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
