"""Run a tier of the tests, step by step: tools/tiers.py test | rest | nightly [--only STEP].

Each step prints a line: how it ended, how long it took, and the last line of its output. All output is kept in
build/tests/TIER/STEP.log; that of a failed step is shown. A failed step does not keep the others from running, but for
those that need what it makes. Status 1 if one failed. The tiers are described in tests/README.md.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOGS = ROOT / "build/tests"
RESULTS = LOGS / "results"
PYTHON = sys.executable
SHOWN_LINES = 150
"""Lines of a failed step's output that are shown."""

TIERS: dict[str, list[list[str]]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["onecopy"]["tests"]


@dataclass(frozen=True)
class Step:
    """Commands that run at the same time, one log each; all must end with status 0."""

    name: str
    commands: Sequence[Sequence[str]]
    needs: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


def pytest(results: str, folders: Sequence[str], marks: str, *more: str, python: str = PYTHON) -> list[str]:
    """Return the command of a pytest session with folders, results and files of its own."""
    own = ["-o", f"cache_dir=build/tests/cache-{results}", "--results", str(RESULTS / f"{results}.json")]
    return [python, "-m", "pytest", "-q", *own, "-m", marks, *more, *folders]


def fast() -> list[Step]:
    """List the steps of `make test`; the extension is built by make."""
    lanes = [
        pytest(f"fast-{number}", folders, "not slow and not nightly") for number, folders in enumerate(TIERS["fast"], 1)
    ]
    return [
        Step("check", [["make", "--no-print-directory", "check"]]),
        Step("build-cpp-tests", [["make", "--no-print-directory", "module-tests"]]),
        Step(
            "cpp",
            [["ctest", "--test-dir", "build/python", "-L", "modules", "-j2", "--output-on-failure"]],
            ("build-cpp-tests",),
        ),
        Step("python", lanes),
    ]


def rest() -> list[Step]:
    """List what `make test-all` runs after `make test`."""
    everywhere = [folder for lane in TIERS["fast"] for folder in lane]
    passed = [
        word
        for number in range(1, len(TIERS["fast"]) + 1)
        for word in ("--without-passed", str(RESULTS / f"fast-{number}.json"))
    ]
    sanitizers = {
        "LD_PRELOAD": " ".join(library(name) for name in ("libasan.so", "libubsan.so", "libstdc++.so")),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:handle_sigbus=0:handle_segv=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    sanitized = ["env", *(f"{name}={value}" for name, value in sanitizers.items())]
    python = str(ROOT / "build/dev/venv/bin/python")
    skips = RESULTS / "cpp.skips"
    skips.unlink(missing_ok=True)
    return [
        Step("build-sanitized", [["make", "--no-print-directory", "sanitized"]]),
        Step(
            "cpp-sanitized",
            [["env", f"ONECOPY_SKIPS={skips}", "ctest", "--preset", "dev", "-j2"]],
            ("build-sanitized",),
        ),
        Step(
            "python",
            [
                pytest("rest", everywhere, "not nightly", *passed),
                [
                    *sanitized,
                    *pytest("sanitized", TIERS["sanitized"][0], "not nightly and not unsanitized", python=python),
                ],
            ],
            ("build-sanitized",),
        ),
        Step(
            "refused-and-frameworks",
            [
                [
                    PYTHON,
                    "-m",
                    "tests.fallbacks.run",
                    "--refuse",
                    "all",
                    "--",
                    "ctest",
                    "--preset",
                    "dev",
                    "-R",
                    "^cpp",
                ],
                pytest("frameworks", TIERS["frameworks"][0], "not nightly"),
            ],
            ("build-sanitized",),
        ),
        Step("leaks", [[*sanitized[:1], *sanitized[1:], python, "-m", "tools.leaks"]], ("build-sanitized",)),
        Step("tidy", [["make", "--no-print-directory", "tidy-changed"]]),
        Step(
            "skips",
            [[PYTHON, "tools/check_skips.py", *(["--report"] if os.environ.get("SKIPS") == "report" else [])]],
            ("python",),
        ),
    ]


def library(name: str) -> str:
    """Return the path of a library of the compiler."""
    command = [os.environ.get("CXX", "c++"), f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def last_line(log: Path) -> str:
    """Return the last line that says something, without its decoration."""
    lines = [line.strip(" =") for line in log.read_text(errors="replace").splitlines() if line.strip(" =")]
    return lines[-1][:100] if lines else ""


def run(step: Step, folder: Path) -> bool:
    """Run the commands of a step at the same time; print how each ended."""
    started = time.monotonic()
    running = []
    for number, command in enumerate(step.commands):
        log = folder / (f"{step.name}-{number + 1}.log" if len(step.commands) > 1 else f"{step.name}.log")
        with log.open("w") as file:
            process = subprocess.Popen(
                command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )
        running.append((process, log))
    good = True
    while running:
        time.sleep(0.05)
        for process, log in [one for one in running if one[0].poll() is not None]:
            running.remove((process, log))
            failed = process.returncode != 0
            good = good and not failed
            seconds = time.monotonic() - started
            print(f"{'FAILED' if failed else 'ok':<7}{log.stem:<26}{seconds:7.1f} s  {last_line(log)}", flush=True)
            if failed:
                lines = log.read_text(errors="replace").splitlines()[-SHOWN_LINES:]
                print("".join(f"    {line}\n" for line in lines), flush=True)
    return good


def main() -> int:
    """Read the command line; run the steps in their order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tiers = {"test": fast, "rest": rest}
    parser.add_argument("tier", choices=tiers)
    parser.add_argument("--only", action="append", metavar="STEP", help="run this step; may be repeated")
    options = parser.parse_args()
    folder = LOGS / options.tier
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    RESULTS.mkdir(exist_ok=True)
    started, failed = time.monotonic(), set()
    for step in tiers[options.tier]():
        if options.only and step.name not in options.only:
            continue
        if lacking := failed & set(step.needs):
            print(f"NOT RUN {step.name}: {', '.join(sorted(lacking))} failed", flush=True)
            failed.add(step.name)
        elif not run(step, folder):
            failed.add(step.name)
    verdict = f"{', '.join(sorted(failed))} failed" if failed else "all passed"
    print(f"{options.tier}: {time.monotonic() - started:.0f} s, {verdict}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
