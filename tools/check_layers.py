"""Check every #include against the DEPENDS lists of src/CMakeLists.txt: tools/check_layers.py [ROOT].

A module may include itself and the modules it depends on; only `os` may include system headers; bindings may include
public headers only. Python's layers are import-linter contracts in pyproject.toml.
"""

import re
from pathlib import Path

from sentences import report

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)
ROOM = re.compile(r"onecopy_module\((\w+)\s(.*?)\)", re.DOTALL)
PROCESSOR = "sys/auxv.h"  # reports the CPU's instructions, for CRC-32C in `base`
SYSTEM = re.compile(r"^(sys/|linux/|asm/|mach/|unistd\.h|fcntl\.h|signal\.h|dirent\.h|pthread\.h|windows\.h)")


def modules(cmake: str) -> dict[str, set[str]]:
    """Return what each module may use, itself included."""
    allowed = {}
    for name, body in ROOM.findall(cmake):
        depends = body.split("DEPENDS", 1)[1].split() if "DEPENDS" in body else []
        allowed[name] = {name, *depends}
    return allowed


def module_of(header: str) -> str:
    """Return the module of a header as it is included: onecopy/files/x.hpp or files/x.hpp."""
    parts = header.split("/")
    if header == "onecopy/onecopy.h":
        return "c"
    return parts[1] if parts[0] == "onecopy" and len(parts) > 1 else parts[0]


def includes(path: Path) -> list[tuple[str, str]]:
    """Return (kind, header) of each include: '<' for system headers, '"' for ours."""
    return INCLUDE.findall(path.read_text())


def fault_of(module: str, public: bool, kind: str, header: str, allowed: dict[str, set[str]]) -> str | None:
    """Return what is wrong with one include, or None."""
    if kind == "<":
        allowed_here = module == "os" or (module, header) == ("base", PROCESSOR)
        return None if allowed_here or not SYSTEM.match(header) else "system headers belong to os"
    if module not in allowed:
        return f"{module} is not a module of src/CMakeLists.txt"
    if public and not header.startswith("onecopy/"):
        return "public headers include public headers only"
    if module_of(header) not in allowed[module]:
        return f"{module} may use {', '.join(sorted(allowed[module]))}"
    return None


def violations(root: Path) -> list[str]:
    """Return one sentence for each include that the lists forbid."""
    allowed = modules((root / "src/CMakeLists.txt").read_text())
    found = []
    for folder in ("include/onecopy", "src"):
        for path in sorted((root / folder).rglob("*.[ch]pp")):
            module = path.relative_to(root / folder).parts[0]
            for kind, header in includes(path):
                fault = fault_of(module, folder.startswith("include"), kind, header, allowed)
                if fault:
                    found.append(f"{path.relative_to(root)}: includes {header}: {fault}")
    bindings = root / "bindings"
    for path in sorted(bindings.rglob("*.[ch]pp")):
        for kind, header in includes(path):
            if kind == '"' and not header.startswith("onecopy/") and not (bindings / header).is_file():
                found.append(f"{path.relative_to(root)}: includes {header}: bindings use public headers only")
    return found


if __name__ == "__main__":
    report(violations)
