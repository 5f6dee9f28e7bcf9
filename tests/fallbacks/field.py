"""Places where users run: an image, volumes, containers, an installed package, small homes. What `make field` runs.

    python -m tests.fallbacks.field "an image" -- COMMAND ARGUMENTS

The command runs there, in namespaces that end with it. Each place has its tests: `SUITE`, or the program of
tests/installed with a package that was installed from a wheel.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.fallbacks.settings import RUN, Setting
from tests.support.isolation import enter_own_mounts

ROOT = Path(__file__).parents[2]
FIELD = [sys.executable, "-m", "tests.fallbacks.field"]
SUITE = [
    "tests/processes/runs/test_snapshot_places.py",
    "tests/processes/runs/test_run_snapshots.py",
    "tests/processes/page_cache/test_holding_processes.py",
    "tests/python/page_cache/test_residency.py",
    "tests/python/store/test_keys.py",
    "tests/python/store/test_store.py",
    "tests/python/top/test_cached.py",
    "tests/python/top/test_holding.py",
    "tests/python/arrays/test_sets.py",
    "tests/python/auto/test_report.py",
]
"""Snapshots, residency, warming, holding, keys, the store, cached functions, folders of models, and `onecopy run`."""
PROGRAM = "tests/installed/alone.py"
"""What an installed wheel must do with numpy alone."""
INSTALLED = ROOT / "build/field/installed"
"""An environment with wheels of this checkout; third-party packages are those of the checkout's own environment."""


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *arguments], check=True)


def in_an_image(folder: Path) -> None:
    """Make overlayfs the root, with all files of the machine in its lower layer."""
    enter_own_mounts()
    for name in ("upper", "work", "root"):
        (folder / name).mkdir()
    root = folder / "root"
    mount("-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={folder}/upper,workdir={folder}/work", root)
    for name in ("dev", "proc", "sys"):
        mount("--rbind", f"/{name}", root / name)
    here = Path.cwd()
    os.chroot(root)
    os.chdir(here)


def on_a_read_only_volume(folder: Path) -> None:
    """Mount the checkout read-only on itself: its file system stays writable."""
    enter_own_mounts()
    here = Path.cwd()
    mount("--bind", "-o", "ro", here, here)
    os.chdir("/")
    os.chdir(here)


def with_a_home_in_memory(folder: Path) -> None:
    enter_own_mounts()
    mount("-t", "tmpfs", "none", folder)
    os.environ |= {"HOME": str(folder), "TMPDIR": str(folder)}


def with_a_read_only_home(folder: Path) -> None:
    enter_own_mounts()
    mount("--bind", "-o", "ro", folder, folder)
    os.environ["HOME"] = str(folder)


def with_little_shared_memory(_: Path) -> None:
    """Mount a /dev/shm of 64 MB, as containers have it."""
    enter_own_mounts()
    mount("-t", "tmpfs", "-o", "size=64m", "none", "/dev/shm")


def with_names_in_no_encoding(folder: Path) -> None:
    """Use the locale C, and a temporary folder whose name is not UTF-8."""
    name = os.fsencode(folder) + b"/caf\xe9"
    os.mkdir(name)  # noqa: PTH102 - bytes
    os.environ |= {"LANG": "C", "LC_ALL": "C"}
    os.environb[b"TMPDIR"] = name


PREPARED: dict[str, Callable[[Path], object]] = {
    "an image": in_an_image,
    "a read-only volume": on_a_read_only_volume,
    "a read-only home": with_a_read_only_home,
    "a home in memory": with_a_home_in_memory,
    "64 MB of /dev/shm": with_little_shared_memory,
    "umask 077": lambda _: os.umask(0o077),
    "64 descriptors": lambda _: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    "names that are not UTF-8": with_names_in_no_encoding,
}
CONTAINER = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--ipc", "--net"]
INIT = ["--", "sh", "-c", '"$@"; exit $?', "sh"]
"""The first process of a container, which takes over the children of those that end."""


def looks_like_gvisor() -> list[str]:
    """Return a command prefix: mincore reports every page, and there are no cachestat, populate or page-table scans."""
    library = ROOT / "build/field/every_page.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    code = "#include <string.h>\nint mincore(void* at, unsigned long size, unsigned char* to) {\n"
    code += "  return memset(to, 1, (size + 4095) / 4096) == 0;\n}\n"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", library, "-"], input=code, text=True, check=True)
    refused = "cachestat,MADV_POPULATE_READ,MADV_COLLAPSE,PAGEMAP_SCAN"
    return [*RUN, "--refuse", refused, "--", "env", f"LD_PRELOAD={library}"]


def install() -> list[str]:
    """Install wheels of this checkout into an environment, not editable; return the command of its interpreter."""
    python = INSTALLED / "bin/python"
    shutil.rmtree(INSTALLED.parent / "wheels", ignore_errors=True)
    wheels = ["--no-deps", "--no-build-isolation", "-w", INSTALLED.parent / "wheels"]
    # As the Makefile configures build/python for the C++ tests: nothing is compiled again, and the tests stay.
    defines = "ONECOPY_WERROR=ON;ONECOPY_TESTS=ON;ONECOPY_BENCHMARKS=ON"
    same = {**os.environ, "SKBUILD_CMAKE_DEFINE": defines, "SKBUILD_BUILD_TARGETS": "_core"}
    sources = [ROOT, *(ROOT / "packages").iterdir()]
    subprocess.run([sys.executable, "-m", "pip", "-q", "wheel", *wheels, *sources], check=True, env=same)
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", INSTALLED], check=True)
    found = list((INSTALLED.parent / "wheels").glob("*.whl"))
    subprocess.run(
        [sys.executable, "-m", "pip", "-q", "--python", python, "install", "--no-deps", "--no-index", *found],
        check=True,
    )
    site = next(INSTALLED.glob("lib/python*/site-packages"))
    others = [path for path in sys.path if path.endswith("site-packages")]
    (site / "others.pth").write_text("\n".join(others) + "\n")
    return [str(python)]


def places() -> list[Setting]:
    obstacle = "" if os.geteuid() == 0 else "only root can make these namespaces"
    suite = [sys.executable, "-m", "pytest", "-q", "-m", "not slow and not nightly", *SUITE]
    run = ["-m", "onecopy", "run", "-q", "--"]
    program = [*install(), PROGRAM]
    under_run = [program[0], *run, *program]
    return [
        Setting("gVisor, simulated", [*looks_like_gvisor(), *suite]),  # first, because it takes twice as long as others
        Setting("an image", [*FIELD, "an image", "--", *suite], obstacle),
        Setting("a read-only volume", [*FIELD, "a read-only volume", "--", *suite], obstacle),
        Setting("a container, root", [*CONTAINER, "--user", "--map-root-user", *INIT, *suite], obstacle),
        Setting("a container, user 1000", [*CONTAINER, "--map-user=1000", "--map-group=1000", *INIT, *suite], obstacle),
        Setting("an installed package", program),
        Setting("an installed package, under run", under_run),
        *(Setting(name, [*FIELD, name, "--", *under_run], obstacle) for name in list(PREPARED)[2:]),
    ]


def main() -> None:
    """Prepare the place that the command line names, and run the command there; its namespaces live as long."""
    name, separator, *command = sys.argv[1:]
    if separator != "--" or name not in PREPARED:
        sys.exit(__doc__)
    PREPARED[name](Path(tempfile.mkdtemp(prefix="field-", dir="/var/tmp")))
    sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
