"""Pages of the site that are not Markdown in docs/: the README, the examples, the notebook, and the API.

MkDocs calls the functions `on_...`. The API is read from the source, not imported: neither FedML nor PyTorch is needed.
"""

from __future__ import annotations

import ast
import html
import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "mrtf_fedml"

_LINK = re.compile(r"(\]\()(?!https?:|#)([^)#\s]+)")
_INDEX = "api/index.md"
#: A part of a docstring that has a heading of its own.
_HEADED = re.compile(r"(Args|Attributes|Class attributes|Returns|Raises):\n(.*)", re.DOTALL)


def on_config(config: Any) -> Any:
    """Add the examples and the API to the navigation, whichever there are."""
    examples = [place for place in pages_elsewhere().values() if place.startswith("examples/")]
    config.nav = [
        *config.nav,
        {"Examples": examples},
        {"API": sorted(api_pages(), key=lambda place: (place != _INDEX, place))},
    ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made."""
    for source, place in pages_elsewhere().items():
        text = (ROOT / source).read_text()
        text = moved_links(notebook_markdown(text) if source.endswith(".ipynb") else text, source)
        files.append(File.generated(config, place, content=text))
    for place, text in api_pages().items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let the links of docs/ that lead out of it find the pages that are made."""
    made = page.file.generated_by is not None
    return markdown if made else moved_links(markdown, f"docs/{page.file.src_uri}")


def pages_elsewhere() -> dict[str, str]:
    """The pages that are not in docs/: where in the repository, and where on the site."""
    examples = sorted((ROOT / "examples").glob("*/README.md"))
    return {
        "README.md": "index.md",
        "docs/tutorials/label.ipynb": "tutorials/label.md",
        "examples/README.md": "examples/index.md",
        **{f"examples/{file.parent.name}/README.md": f"examples/{file.parent.name}.md" for file in examples},
    }


def notebook_markdown(text: str) -> str:
    """A notebook as Markdown: its cells in order, each code cell followed by the outputs that are stored in it."""
    parts: list[str] = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                parts.append(f'<img alt="output" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">')
            elif "text/html" in data:
                # A wide table scrolls on a phone. Markdown ends a block of HTML at an empty line.
                parts.append(
                    '<div style="overflow-x: auto">' + re.sub(r"\n\s*\n", "\n", "".join(data["text/html"])) + "</div>"
                )
            else:
                plain = "".join(output.get("text") or data.get("text/plain", [])).rstrip()
                parts.append(f"```text\n{plain}\n```")
    return "\n\n".join(parts)


def moved_links(text: str, source: str) -> str:
    """The text of the repository's file `source`, its links as they are on the site.

    >>> moved_links("[the method](docs/explanation/method.md#rap) [it](https://x)", "README.md")
    '[the method](explanation/method.md#rap) [it](https://x)'
    >>> moved_links("[README](../README.md)", "examples/README.md")
    '[README](../index.md)'
    """
    places = pages_elsewhere()
    here = posixpath.dirname(_on_site(source, places))

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2]))
        return link[1] + posixpath.relpath(_on_site(target, places), here or ".")

    return _LINK.sub(moved, text)


def _on_site(path: str, places: dict[str, str]) -> str:
    if path.startswith("mrtf_fedml/") and path.count("/") > 1:
        # A source file is described on its package's page.
        return f"api/{path.split('/')[1]}.md"
    return places.get(path, path.removeprefix("docs/"))


def api_pages() -> dict[str, str]:
    """The API: an index of the packages, and for each its modules with what is public in them."""
    pages = {}
    packages = sorted(folder for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists())
    lines = ["# API", "", _prose(_docstring(PACKAGE / "__init__.py")), "", "| package | what it is |", "|---|---|"]
    for package in packages:
        modules = sorted(package.rglob("*.py"))
        pages[f"api/{package.name}.md"] = "\n".join(_package_page(package, modules))
        first = _docstring(package / "__init__.py").partition("\n")[0]
        lines.append(f"| [{package.name}]({package.name}.md) | {_prose(first)} |")
    hall = [file for file in sorted(PACKAGE.glob("*.py")) if file.name != "__init__.py"]
    for module in hall:
        lines += _module(module)
    pages[_INDEX] = "\n".join(lines)
    return pages


def _package_page(package: Path, modules: list[Path]) -> Iterator[str]:
    yield f"# mrtf_fedml.{package.name}\n"
    yield _prose(_docstring(package / "__init__.py"))
    for module in modules:
        if module.name != "__init__.py":
            yield from _module(module)


def _module(file: Path) -> Iterator[str]:
    tree = ast.parse(file.read_text())
    name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
    yield f"\n## {name}\n"
    yield _prose(ast.get_docstring(tree) or "")
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield from _member(node, node.name, "###")


def _member(node: ast.FunctionDef | ast.ClassDef, name: str, level: str) -> Iterator[str]:
    yield f"\n{level} {name}\n"
    if isinstance(node, ast.FunctionDef):
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        yield f"```python\ndef {node.name}({ast.unparse(node.args)}){returns}\n```\n"
    else:
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        yield f"```python\nclass {node.name}{f'({bases})' if bases else ''}\n```\n"
    yield _prose(ast.get_docstring(node) or "")
    for inner in node.body if isinstance(node, ast.ClassDef) else []:
        if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
            yield from _member(inner, f"{name}.{inner.name}", "####")


def _docstring(file: Path) -> str:
    return ast.get_docstring(ast.parse(file.read_text())) or ""


def _prose(docstring: str) -> str:
    """A docstring as Markdown: its examples and indented parts as code, what is headed as a list."""
    parts = []
    for part in docstring.split("\n\n"):
        headed = _HEADED.fullmatch(part)
        if part.startswith(">>> "):
            parts.append(f"```python\n{part}\n```")
        elif part.startswith("    "):
            parts.append(f"```\n{part}\n```")
        elif headed:
            entries = re.split(r"\n(?=    \S)", "\n" + headed[2])[1:]
            parts.append(f"**{headed[1]}**\n\n" + "\n".join("- " + _safe(" ".join(entry.split())) for entry in entries))
        else:
            parts.append(_safe(part))
    return "\n\n".join(parts)


def _safe(text: str) -> str:
    """Prose in which only backquotes and lists are Markdown: shapes are no links, and comparisons are no HTML."""
    spans = re.split(r"(`[^`]*`)", text)
    return "".join(
        span if index % 2 else re.sub(r"([\[\]*_\\])", r"\\\1", html.escape(span, quote=False))
        for index, span in enumerate(spans)
    )
