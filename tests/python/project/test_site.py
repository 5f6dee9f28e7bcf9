"""The site: it builds without a warning, and has every command, header, public name and notebook."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.places import ROOT

import onecopy

# The first test that needs the site builds it, and three notebooks are executed for it.
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


def built(folder: Path, target: Path, configuration: str = "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    """Build the site. Not --quiet: what it hides, --strict does not count."""
    for tool in ("mkdocs", "mkdocstrings", "nbclient", "nbconvert", "ipykernel"):
        pytest.importorskip(tool, reason="make docs has not been run: the site's tools are not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", configuration, "--site-dir", str(target)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=570, check=False
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    done = built(ROOT, target)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return target


def test_the_site_has_every_command_header_name_and_notebook_with_what_it_drew(site):
    assert "onecopy convert" in (site / "reference/command-line/index.html").read_text()
    headers = (site / "reference/cpp/index.html").read_text()
    paths = [path.relative_to(ROOT / "include").as_posix() for path in (ROOT / "include").rglob("*.hpp")]
    assert paths
    assert [path for path in paths if path not in headers] == []
    reference = "".join(page.read_text() for page in (site / "reference").rglob("index.html"))
    ids = set(re.findall(r'id="onecopy\.[\w.]*?(\w+)"', reference))
    assert {name for names in onecopy._HOMES.values() for name in names} <= ids
    for notebook in (ROOT / "docs/notebooks").glob("*.ipynb"):
        assert f"{notebook.stem}_files/output_" in (site / f"notebooks/{notebook.stem}/index.html").read_text()


def test_nothing_is_fetched_when_a_page_is_read(site):
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert 'data-md-component="source"' not in text  # for which the theme's script asks the repository's server
        text = re.sub(r'<link rel="canonical"[^>]*>', "", text)  # names the page, and is not fetched
        fetched = re.findall(r'<(?:script|img|iframe)[^>]* src="([^"]+)"|<link [^>]*href="([^"]+)"', text)
        assert [link for pair in fetched for link in pair if re.match(r"https?:|//", link)] == [], page


def test_a_broken_link_fails_the_build(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# One\n\n[a](no.md) [b](#no)\n")
    settings = (ROOT / "mkdocs.yml").read_text()
    validation = re.search(r"^validation:\n(?:  .*\n)+", settings, re.MULTILINE)
    assert validation is not None
    (tmp_path / "mkdocs.yml").write_text(f"site_name: broken\n{validation[0]}")
    done = built(tmp_path, tmp_path / "site")
    assert done.returncode == 1
    assert "Aborted with 2 warnings" in done.stdout + done.stderr


def test_a_fresh_clone_installs_what_the_notebooks_import():
    command = ["make", "--dry-run", "--what-if=pyproject.toml", "docs"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    groups = re.findall(r"install --group (\w+)", done.stdout)
    assert groups.index("all") < groups.index("docs")
