"""Every page is true: its examples run, its links lead somewhere, what it lists is complete.

A page's examples are one script, run in a fresh process in an empty folder. In the order of the page: ```python blocks
as they stand, blocks with title="name" written to that file, and of ```console blocks the lines that begin with
"$ onecopy", "$ python", "$ cc", "$ c++" or "$ ./"; a status other than 0 is a failure. What an HTML comment holds is
run too, to prepare files that the reader has and the test has not; `<!-- after PAGE -->` runs the examples of another
page first. ```cpp blocks without a title must compile; pkg-config finds the libraries that the extension was built
from. ```c++ blocks show libraries that are not here.
"""

import contextlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from tests.support.places import ROOT
from tools import write_pages

import onecopy as oc

PAGES = sorted(path for folder in ("docs", "packages", "examples", "tests") for path in (ROOT / folder).rglob("*.md"))
PAGES += sorted(ROOT.glob("*.md"))

BLOCK = re.compile(r'^( *)```(\w+)(?: title="([^"]+)")?\n(.*?)^\1```$', re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
DEFINITION = re.compile(r"^\[[^\]]+\]: (\S+)$", re.MULTILINE)
REPOSITORY = "https://github.com/onecopy/onecopy"
OWN = re.compile(
    rf"{REPOSITORY}/(?:blob|tree)/main/|https://raw\.githubusercontent\.com/onecopy/onecopy/main/|{REPOSITORY}(?=#|$)"
)
"""What the links of pages begin with that are read outside of the checkout, and lead into it."""
ON_INDEX = [ROOT / "README.md", *sorted(ROOT.glob("packages/*/README.md"))]
"""Pages that a package index shows, where relative links lead nowhere."""
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """List (language, title, text) of the fenced blocks of a page."""
    return [(language, title, text) for _, language, title, text in BLOCK.findall(page.read_text())]


def script_of(page: Path) -> str:
    """Make one script of the examples of a page."""
    earlier = re.findall(r"^<!-- after (\S+\.md) -->$", page.read_text(), re.MULTILINE)
    steps = [script_of(page.parent / name) for name in earlier]
    for language, title, text in blocks(page):
        if language in {"python", "c", "cpp"} and title:
            steps.append(f"__import__('pathlib').Path({title!r}).write_text({text!r})")
        elif language == "python":
            steps.append(text)
        elif language == "console":
            joined = re.sub(r" *\\\n *", " ", text)  # a command of several lines
            lines = re.findall(r"^\$ ((?:onecopy |python |cc |c\+\+ |\./).*)$", joined, re.MULTILINE)
            steps += [f"__import__('subprocess').run({line!r}, shell=True, check=True)" for line in lines]
    return "\n".join(steps)


# Libraries that an example may import, and `make test` does without.
OPTIONAL = {"datasets", "faiss", "matplotlib", "onnx", "onnxruntime", "pandas", "pyarrow", "ray", "scipy", "sklearn"}
OPTIONAL |= {"torch", "transformers", "zarr"}


def describe_libraries(folder: Path) -> None:
    """Write what pkg-config would find if the libraries beside the extension were installed."""
    if not (libraries := list((ROOT / "build/python/src").glob("libonecopy_structs.a"))):
        pytest.skip("the C++ libraries are not in build/python")
    if not shutil.which("c++") or not shutil.which("pkg-config"):
        pytest.skip("there is no C++ compiler or no pkg-config here")
    modules = re.findall(r"^onecopy_module\((\w+)", (ROOT / "src/CMakeLists.txt").read_text(), re.MULTILINE)
    modules.remove("c")  # libonecopy.so has it
    links = {
        "onecopy": f"{' '.join(f'-lonecopy_{module}' for module in reversed(modules))} -pthread",
        "onecopy-c": f"-lonecopy -Wl,-rpath,{libraries[0].parent}",
    }
    for name, flags in links.items():
        (folder / f"{name}.pc").write_text(
            f"Name: {name}\nDescription: as it was built\nVersion: 0\n"
            f"Cflags: -I{ROOT / 'include'}\nLibs: -L{libraries[0].parent} {flags}\n"
        )


@pytest.mark.parametrize("page", [page for page in PAGES if script_of(page)], ids=name_of)
@pytest.mark.slow
@pytest.mark.timeout(320)
def test_the_examples_of_a_page_run(page, tmp_path, request, monkeypatch):
    script = script_of(page)
    for name in sorted(OPTIONAL & set(re.findall(r"^ *(?:import|from) (\w+)", page.read_text(), re.MULTILINE))):
        pytest.importorskip(name, reason=f"{name} is not installed")
    if "oc.scratch(" in script or "oc.images.decode(" in script:
        request.getfixturevalue("reserving")
    if "c++ -std" in script or "cc -std" in script:
        describe_libraries(tmp_path)
    (tmp_path / "page.py").write_text(script)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for name, folder in (("TMPDIR", tmp_path), ("PKG_CONFIG_PATH", tmp_path), ("ONECOPY_CACHE", tmp_path / "cache")):
        monkeypatch.setenv(name, str(folder))
    command = [sys.executable, "-W", "error", "page.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


CPP = [
    (name_of(page), text) for page in PAGES for language, title, text in blocks(page) if language == "cpp" and not title
]


@pytest.mark.parametrize(("page", "text"), CPP, ids=[f"{page}-{number}" for number, (page, _) in enumerate(CPP)])
def test_the_cpp_of_a_page_compiles(page, text, tmp_path):
    compiler = shutil.which("c++") or pytest.skip("there is no C++ compiler here")
    includes = "".join(re.findall(r"^#include .*\n", text, re.MULTILINE))
    body = re.sub(r"^#include .*\n", "", text, flags=re.MULTILINE)
    source = text if "int main" in text else f"{includes}int main() {{\n{body}\n}}\n"
    (tmp_path / "page.cpp").write_text(source)
    command = [compiler, "-std=c++20", "-fsyntax-only", f"-I{ROOT / 'include'}", str(tmp_path / "page.cpp")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def anchors(page: Path) -> set[str]:
    """List the anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """List the links of a page that lead nowhere, of those that are relative or lead into the repository."""
    broken = []
    text = CODE.sub("", page.read_text())
    for link in [*LINK.findall(text), *DEFINITION.findall(text)]:
        own = OWN.match(link)
        if re.match(r"[a-z]+:", link) and not own:
            continue
        name, _, anchor = link[own.end() if own else 0 :].partition("#")
        target = ROOT / (name or "README.md") if own else page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_into_the_tree_lead_somewhere(page):
    assert broken_links(page) == []


def test_a_broken_link_is_seen(tmp_path):
    (tmp_path / "page.md").write_text("# One\n\n[a](no.md) [b](#one) [c](#two) [d](page.md#one) [e](https://x.y/z)\n")
    assert broken_links(tmp_path / "page.md") == ["no.md", "#two"]
    blob = f"{REPOSITORY}/blob/main"
    text = f"[a]({blob}/no.md) [b]({REPOSITORY}#platforms) [c]({REPOSITORY}/issues)\n\n[d]: {blob}/README.md#no\n"
    (tmp_path / "page.md").write_text(text)
    assert broken_links(tmp_path / "page.md") == [f"{blob}/no.md", f"{blob}/README.md#no"]


@pytest.mark.parametrize("page", ON_INDEX, ids=name_of)
def test_pages_on_the_package_index_have_absolute_links_and_pictures(page):
    text = CODE.sub("", page.read_text())
    links = [*re.findall(r"\]\(([^)\s]+)\)", text), *DEFINITION.findall(text)]
    assert links
    assert [link for link in links if not link.startswith("https://")] == []
    labels = {label.lower() for label in re.findall(r"^\[([^\]]+)\]: ", text, re.MULTILINE)}
    assert {label.lower() for label in re.findall(r"\]\[([^\]]+)\]", text)} <= labels


def test_the_metadata_names_the_repository_to_which_pages_link():
    for path in (ROOT / "pyproject.toml", *ROOT.glob("packages/*/pyproject.toml")):
        assert tomllib.loads(path.read_text())["project"]["urls"]["Repository"] == REPOSITORY
    assert f"repo_url: {REPOSITORY}\n" in (ROOT / "mkdocs.yml").read_text()
    assert f"repository-code: {REPOSITORY}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_page_about_a_language_shows_the_program_that_is_tested():
    programs = {"cpp-structures": ("cmake_consumer/CMakeLists.txt", "cmake_consumer/main.cpp"), "c": ("c/sum.c",)}
    for page, names in programs.items():
        shown = [text for _, _, text in blocks(ROOT / f"docs/howto/{page}.md")]
        assert [name for name in names if (ROOT / "examples" / name).read_text() not in shown] == []


def test_the_tests_that_show_what_is_promised_exist():
    pages = [(ROOT / name).read_text() for name in ("SECURITY.md", "tests/README.md")]
    promised = [line for page in pages for line in page.splitlines() if "::" in line]
    assert len(promised) > 30
    for line in promised:
        for path, name in re.findall(r"`((?:packages/\w+/)?tests/\S+?)::(\w+)`", line):
            assert f"\ndef {name}(" in (ROOT / path).read_text(), f"{path}::{name}"


def test_one_page_lists_every_public_name_and_no_other_and_the_reference_shows_them(monkeypatch):
    monkeypatch.setenv("ONECOPY_AUTO", "0")  # one of them is `onecopy.auto`, which would replace functions here
    page = (ROOT / "docs/reference/index.md").read_text()
    assert sorted(re.findall(r"^\| \[?`oc\.(\w+)`", page, re.MULTILINE)) == dir(oc)
    for path in re.findall(r"^\| \[`(onecopy\.[\w.]+)`", page, re.MULTILINE):
        assert pkgutil.resolve_name(path) is not None
    pages = "\n".join(page.read_text() for page in (ROOT / "docs/reference").glob("*.md"))
    shown = set()
    for name in re.findall(r"^::: (onecopy[\w.]+)$", pages, re.MULTILINE):
        with contextlib.suppress(ModuleNotFoundError):  # a framework that is not installed
            shown |= set(getattr(import_module(name), "__all__", ()))
    assert set(oc.__all__) - {"__version__", "errors"} <= shown


def test_architecture_names_paths_that_exist_and_every_module_and_package():
    page = (ROOT / "ARCHITECTURE.md").read_text()
    others = re.compile(r"(?<![a-z])x[./]|sys/auxv\.h")  # x: the name of what is to be added; a header of the system
    named = [path for path in re.findall(r"`((?:[\w.]+/)+[\w.]*)`", page) if not others.search(path)]
    folders = [ROOT, *(ROOT / "src").iterdir(), *ROOT.glob("packages/*/src/*")]
    folders += [ROOT / name for name in ("src", "src/os", "bindings", "packages/bench", "python/onecopy")]
    assert len(named) > 40
    assert [path for path in named if not any((folder / path).exists() for folder in folders)] == []
    modules = re.findall(r"^onecopy_module\((\w+)", (ROOT / "src/CMakeLists.txt").read_text(), re.MULTILINE)
    packages = [path.stem for path in (ROOT / "python/onecopy").iterdir() if not path.name.startswith("_")]
    for name in {*modules, *packages} - {"py"}:
        assert re.search(rf"`{name}/?`", page), name


def test_the_readme_is_short_and_begins_with_what_a_stranger_needs():
    text = (ROOT / "README.md").read_text()
    assert len([line for line in text.splitlines() if not DEFINITION.match(line)]) <= 140
    first = text[: text.index("## More in your own code")].splitlines()
    assert len(first) <= 80
    assert max(map(len, first)) <= 100
    for name in ("![", "onecopy explain gunicorn", "onecopy run -- gunicorn", "oc.open(", "not for", "pip install"):
        assert name in text[: text.index("## More in your own code")], name


@pytest.mark.parametrize("page", write_pages.PAGES)
def test_the_generated_part_of_a_page_is_up_to_date(page):
    # In an interpreter of its own: click keeps the help option with which a command was run first.
    code = f"from tools import write_pages; print(write_pages.written({page!r}), end='')"
    written = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert (ROOT / page).read_text() == written, "python tools/write_pages.py"


def test_the_page_about_stories_links_to_the_newest_record():
    newest = max((ROOT / "packages/bench/results").glob("*/*-stories.json*"), key=lambda path: path.name)
    page = (ROOT / "docs/explanation/benchmarks.md").read_text()
    assert re.findall(r"\]\(\.\./\.\./(\S+/stories\.md)\)", page) == [name_of(newest.with_name("stories.md"))]


def public_names(header: Path) -> list[str]:
    """List what a header of the module `structs` has in namespace onecopy: types, concepts, constants, functions."""
    text = re.sub(r"^namespace onecopy::structs \{.*", "", header.read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^namespace structs \{.*?^\}  // namespace structs", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^(?:inline |constexpr |consteval |[\w:<>]+ )+?(\w+)(?: \{|\(|\{\}| =|<)", text, re.MULTILINE)


def test_the_page_about_structs_names_everything_that_is_public():
    page = (ROOT / "docs/reference/structs.md").read_text()
    names = {name for path in (ROOT / "include/onecopy/structs").glob("*.hpp") for name in public_names(path)}
    assert names >= {"OwningSpan", "save", "open", "share", "schema_hash", "versions_of", "OpenReport"}
    assert {name for name in names if not re.search(rf"\b{name}\b", page)} == set()


def test_every_page_is_somewhere_in_the_menu():
    menu = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        place = page.relative_to(ROOT / "docs")
        assert place.as_posix() in menu or f"{place.parent}/*" in menu
