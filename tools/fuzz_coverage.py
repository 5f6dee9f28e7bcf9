"""Print which share of the parsers' lines the committed fuzz corpora run: tools/fuzz_coverage.py FOLDER.

The folder holds the fuzz targets as preset `coverage` builds them, which replay their corpora. Less than 95 % fails.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARSERS = [ROOT / "src" / "formats" / name for name in ("index", "json", "onecopy_metadata", "safetensors")]
TARGETS = ("safetensors", "layout")
WANTED = 95.0  # per cent


def tool(name: str) -> str:
    """Return the path of a tool of LLVM, which may carry the version in its name."""
    version = subprocess.run(["clang++", "-dumpversion"], capture_output=True, text=True, check=True).stdout
    found = shutil.which(name) or shutil.which(f"{name}-{version.split('.')[0]}")
    if found is None:
        sys.exit(f"{name} is missing: apt-get install llvm")
    return found


def main() -> int:
    """Replay the corpora, merge what was counted, print a line per file."""
    folder = Path(sys.argv[1])
    profiles = [folder / f"{name}.profraw" for name in TARGETS]
    for name, profile in zip(TARGETS, profiles, strict=True):
        command = [folder / f"fuzz_{name}", ROOT / "fuzz" / "corpus" / name]
        subprocess.run(command, env={**os.environ, "LLVM_PROFILE_FILE": str(profile)}, check=True)
    merged = folder / "merged.profdata"
    subprocess.run([tool("llvm-profdata"), "merge", *profiles, "-o", merged], check=True)
    programs = [folder / f"fuzz_{TARGETS[0]}", *(f"-object={folder / f'fuzz_{name}'}" for name in TARGETS[1:])]
    # One of the programs, then the others, then the sources asked for.
    command = [tool("llvm-cov"), "export", "-summary-only", *programs, f"-instr-profile={merged}"]
    sources = [str(path.with_suffix(".cpp")) for path in PARSERS]
    told = subprocess.run([*command, *sources], capture_output=True, text=True, check=True).stdout
    lines = {Path(file["filename"]).name: file["summary"]["lines"] for file in json.loads(told)["data"][0]["files"]}
    for name, count in lines.items():
        print(f"{name:24} {count['covered']:4} of {count['count']:4} lines  {count['percent']:5.1f} %")
    covered, total = (sum(count[key] for count in lines.values()) for key in ("covered", "count"))
    print(f"{'together':24} {covered:4} of {total:4} lines  {100 * covered / total:5.1f} %")
    return 0 if len(lines) == len(PARSERS) and 100 * covered / total >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
