"""The documentation site: it builds strictly, is complete, and loads nothing from the network."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import mrtf_fedml

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(ROOT / ".mkdocs.yml"), "-d", str(folder)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return folder


def test_site_has_every_page_in_navigation(site: Path) -> None:
    home = (site / "index.html").read_text()
    docs = ROOT / "docs"
    pages = [str(file.relative_to(docs).with_suffix("")) for file in docs.rglob("*.md")]
    assert len(pages) > 10
    for page in pages:
        assert (site / f"{page}.html").exists()
        assert f'href="{page}.html"' in home
    for example in (ROOT / "examples").glob("*_example"):
        assert f'href="examples/{example.name}.html"' in home
    assert not list(site.rglob("*.py")), "scripts are not part of the site"


def test_api_pages_have_every_public_name(site: Path) -> None:
    packages = {folder.name for folder in (ROOT / "mrtf_fedml").iterdir() if (folder / "__init__.py").exists()}
    assert {file.stem for file in (site / "api").glob("*.html")} == packages | {"index"}
    algorithms = re.sub("<[^>]+>", "", (site / "api" / "algorithms.html").read_text())
    assert "def server_update(self, state: ServerState" in algorithms
    refinery = (site / "api" / "refinery.html").read_text()
    assert "[..., M, C]; leading dimensions hold models" in refinery
    pages = "".join(file.read_text() for file in (site / "api").glob("*.html"))
    for name in mrtf_fedml._LAZY_EXPORTS:
        assert re.search(rf"<h3[^>]*>{name}<", pages), f"{name} is public but on no page"


def test_site_renders_the_notebook_and_has_a_search_index(site: Path) -> None:
    page = re.sub("<[^>]+>", "", (site / "tutorials" / "label.html").read_text())
    for cell in json.loads((ROOT / "docs" / "tutorials" / "label.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert html.escape(cell["source"][0].strip(), quote=False) in page
    index = json.loads((site / "search" / "search_index.json").read_text())
    assert any(entry["location"].startswith("tutorials/own_table.html") for entry in index["docs"])


def test_pages_load_nothing_from_the_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|img|link)[^>]*(?:src|href)=[\"'](https?:)?//[^>]*>", page.read_text())
        assert not loaded, f"{page.name} loads from the network"


def test_citation_and_hooks_match_the_project() -> None:
    citation = yaml.safe_load((ROOT / ".github" / "CITATION.cff").read_text())
    assert citation["version"] == mrtf_fedml.__version__
    paper = citation["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == ["Li", "Yang", "Zhan"]
    assert paper["title"] == "MrTF: Model Refinery for Transductive Federated Learning"
    assert (paper["year"], paper["journal"]) == (2023, "Data Mining and Knowledge Discovery")
    assert re.fullmatch(r"10\.1007/s10618-\d{3}-\d{5}-\d", paper["doi"])
    script = (ROOT / "launch" / "test.sh").read_text()
    for hook in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]:
        assert f'step "{hook["name"]}" {hook["entry"]}\n' in script, "the hooks are the script's checks"
    for file in (ROOT / ".github").glob("*.md"):
        for link in re.findall(r"\]\(([^)]+)\)", file.read_text()):
            assert (file.parent / link).exists()
