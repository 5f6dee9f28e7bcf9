"""Print which lines and branches ran: tools/measure_coverage.py tests | fuzz.

`tests`: of src, bindings and python/onecopy, by folder, after the steps of `make coverage`. C++ counts what the build
in build/coverage wrote to build/coverage/profiles, Python what coverage.py wrote beside it; processes that were killed
are in it. The record is build/coverage/coverage.json. `fuzz`: the parsers' lines that the committed fuzz corpora run;
less than 95 % fails.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build/coverage"
PROFILES = BUILD / "profiles"
PARSERS = [ROOT / "src" / "formats" / f"{name}.cpp" for name in ("index", "json", "onecopy_metadata", "safetensors")]
FUZZED = ("safetensors", "layout")
WANTED = 95.0  # per cent


def tool(name: str) -> str:
    """Return the path of the tool of LLVM that belongs to the compiler of the preset."""
    found = shutil.which(f"{name}-19")
    if found is None:
        sys.exit(f"{name}-19 is missing: apt-get install llvm-19")
    return found


def counted(profiles: Sequence[Path], programs: Sequence[Path], *sources: Path) -> dict[Path, Any]:
    """Return LLVM's counters of each source: {"lines": {"count": ..., "covered": ...}, "branches": ...}."""
    merged = BUILD / "merged.profdata"
    subprocess.run([tool("llvm-profdata"), "merge", "-failure-mode=all", *profiles, "-o", merged], check=True)
    objects = [programs[0], *(f"-object={program}" for program in programs[1:])]
    command = [
        tool("llvm-cov"),
        "export",
        "-summary-only",
        *map(str, objects),
        f"-instr-profile={merged}",
        *map(str, sources),
    ]
    summaries = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {Path(file["filename"]): file["summary"] for file in json.loads(summaries)["data"][0]["files"]}


def row(name: str, *counts: tuple[int, int]) -> str:
    """Return a line of a table: a name, and (covered, total) as a share."""
    shares = (f"{covered:7} of {total:6} {100 * covered / max(total, 1):6.2f} %" for covered, total in counts)
    return f"{name:28}" + "   ".join(shares)


def of_fuzzing() -> int:
    """Replay the corpora, merge what was counted, print a line per file."""
    PROFILES.mkdir(parents=True, exist_ok=True)
    profiles = [PROFILES / f"fuzz-{name}.profraw" for name in FUZZED]
    programs = [BUILD / f"fuzz/fuzz_{name}" for name in FUZZED]
    for name, program, profile in zip(FUZZED, programs, profiles, strict=True):
        environment = {**os.environ, "LLVM_PROFILE_FILE": str(profile)}
        subprocess.run([program, ROOT / "fuzz/corpus" / name], env=environment, check=True)
    lines = {path.name: summary["lines"] for path, summary in counted(profiles, programs, *PARSERS).items()}
    for name, count in lines.items():
        print(row(name, (count["covered"], count["count"])))
    covered, total = (sum(count[key] for count in lines.values()) for key in ("covered", "count"))
    print(row("together", (covered, total)))
    return 0 if len(lines) == len(PARSERS) and 100 * covered / total >= WANTED else 1


def of_tests() -> int:
    """Merge what all processes counted; print a line per folder, and the sums."""
    programs = [path for path in (BUILD / "tests").glob("test_*") if path.is_file()]
    programs += (BUILD / "bindings").glob("_core.*.so")
    files: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {}
    for path, summary in counted(list(PROFILES.glob("*.profraw")), programs).items():
        if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in {"src", "bindings", "include"}:
            lines, branches = ((summary[kind]["covered"], summary[kind]["count"]) for kind in ("lines", "branches"))
            files[str(path.relative_to(ROOT))] = (lines, branches)
    report = BUILD / "python.json"
    python = [sys.executable, "-W", "ignore", "-m", "coverage"]  # a killed process may have left half a file
    subprocess.run(
        [*python, "combine", "-q", "--keep", f"--data-file={BUILD / 'python'}", PROFILES], check=True, cwd=ROOT
    )
    subprocess.run([*python, "json", "-q", f"--data-file={BUILD / 'python'}", "-o", report], check=True, cwd=ROOT)
    for name, file in json.loads(report.read_text())["files"].items():
        count = file["summary"]
        lines, branches = (
            (count["covered_lines"], count["num_statements"]),
            (count["covered_branches"], count["num_branches"]),
        )
        files[name] = (lines, branches)
    (BUILD / "coverage.json").write_text(json.dumps(files, indent=1))
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for name, (lines, branches) in files.items():
        parts = Path(name).parent.parts
        for folder in {"/".join(parts[:3]) if parts[0] == "python" else "/".join(parts[:2]), parts[0] + " together"}:
            sums[folder] = [a + b for a, b in zip(sums[folder], (*lines, *branches), strict=True)]
    print(f"{'':28}{'lines':>26}   {'branches':>26}")
    for folder, (covered, lines_, taken, branches_) in sorted(sums.items()):
        print(row(folder, (covered, lines_), (taken, branches_)))
    return 0


if __name__ == "__main__":
    sys.exit(of_fuzzing() if sys.argv[1] == "fuzz" else of_tests())
