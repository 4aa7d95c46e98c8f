"""Pages of the site of the documents: ``python docs/site_pages.py BUILD``, before MkDocs in ``make site``.

Below ``BUILD/pages`` it lays what the documents link to as it lies in the repository, so that their links are
links of the site, and the reference, which follows from the code. ``BUILD/mkdocs.yml`` is ``docs/mkdocs.yml``
with the decisions and all further pages in its navigation.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from generate import docstrings, metrics, openapi

from moorage.__main__ import app
from moorage.common.config.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
# What is shown, and what documents link to.
SOURCES = (
    *("docs", "deploy", "examples", "protos", "benchmarks"),
    *("console/README.md", "src/moorage/manager/console/bundle/licenses.md"),
)
_LINK = re.compile(r"(\[[^\]\n]*\]\()([^)#\s]+)(#[^)\s]*)?\)")
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "results", "*.pyc", "node_modules", "requirements.lock")
_HTTP = ("get", "post", "put", "patch", "delete")


def copy_sources(pages: Path) -> None:
    for name in (*SOURCES, *(path.name for path in ROOT.glob("*.md")), "LICENSE"):
        source, target = ROOT / name, pages / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=_LEFT_OUT)
        elif source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    for page in pages.rglob("*.md"):
        page.write_text(with_links_of_the_site(page, pages))


def with_links_of_the_site(page: Path, pages: Path) -> str:
    """The text of a page: a link to a directory leads to a list of its files."""

    def link(match: re.Match[str]) -> str:
        target = (page.parent / match[2]).resolve()
        if "://" in match[2] or not target.is_dir():
            return match[0]
        return f"{match[1]}{match[2].rstrip('/')}/{listing(target).name}{match[3] or ''})"

    return _LINK.sub(link, page.read_text())


def listing(folder: Path) -> Path:
    """The page about a directory: its README, or a list of its files."""
    if (folder / "README.md").exists():
        return folder / "README.md"
    page = folder / "files.md"
    names = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir() if path != page)
    page.write_text(f"# {folder.name}\n\n" + "".join(f"* `{name}`\n" for name in names))
    return page


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def commands() -> Iterator[str]:
    """The help of every command, as it prints it."""
    root: Any = typer.main.get_command(app)
    context = typer.Context(root, info_name="moorage")

    def walk(command: Any, context: Any) -> Iterator[str]:
        yield f"## {context.command_path}\n\n```text\n{command.get_help(context).strip()}\n```\n"
        for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
            child = command.get_command(context, name)
            if not child.hidden:
                yield from walk(child, typer.Context(child, info_name=name, parent=context))

    yield "# Commands\n\nThe help of every command. Each takes the options of its connection and output.\n"
    yield from walk(root, context)


def rest() -> Iterator[str]:
    """Every route of the OpenAPI document."""
    described = json.loads(openapi())
    yield "# REST API\n"
    yield "From the OpenAPI document, which a manager serves at `/openapi.json`, with every schema.\n"
    for path, operations in described["paths"].items():
        yield f"## {path.replace('{', '&#123;')}\n"
        for method in filter(operations.__contains__, _HTTP):
            operation = operations[method]
            yield f"### {method.upper()} {path.replace('{', '&#123;')}\n\n{operation.get('summary', '')}\n"
            if text := operation.get("description"):
                yield f"{text}\n"
            yield from _parameters(operation)
            for status, answer in operation["responses"].items():
                yield f"* `{status}` {cell(answer.get('description', ''))}{_schema(answer)}"
            yield ""


def _parameters(operation: dict[str, Any]) -> Iterator[str]:
    if body := operation.get("requestBody"):
        yield f"Body{_schema(body)}\n"
    given = [one for one in operation.get("parameters", ()) if "name" in one]
    if given:
        yield "| parameter | in | meaning |\n|---|---|---|"
        for one in given:
            yield f"| `{one['name']}` | {one['in']} | {cell(one.get('description', ''))} |"
        yield ""


def _schema(described: dict[str, Any]) -> str:
    names = re.findall(r"#/components/schemas/(\w+)", json.dumps(described.get("content", {})))
    return f" (`{names[0]}`)" if names else ""


def settings() -> Iterator[str]:
    yield "# Settings\n"
    yield "From flags, `MOORAGE_SECTION__NAME` in the environment, `moorage.toml`, defaults, in this order.\n"
    for section in Settings.model_fields:
        kind = type(getattr(Settings(), section))
        described = docstrings(kind)
        yield f"## {section}\n\n| setting | default | meaning |\n|---|---|---|"
        for name, field in kind.model_fields.items():
            default = cell(repr(field.get_default(call_default_factory=True)))
            yield f"| `{section}.{name}` | `{default}` | {cell(described.get(name, ''))} |"
        yield ""


def measured() -> Iterator[str]:
    yield "# Metrics\n\n| metric | meaning |\n|---|---|"
    for name, meaning in sorted(metrics()):
        yield f"| `{name}` | {cell(meaning)} |"


def configuration(pages: Path) -> str:
    """``docs/mkdocs.yml`` with the decisions, for a file beside ``pages``."""
    decisions = sorted(pages.glob("docs/decisions/[0-9]*.md"))
    titles = (json.dumps(page.read_text().splitlines()[0].lstrip("# ")) for page in decisions)
    lines = [
        f"{' ' * 10}- {title}: docs/decisions/{page.name}"
        for title, page in zip(titles, decisions, strict=True)
    ]
    text = (ROOT / "docs" / "mkdocs.yml").read_text().replace("../build/site/", "")
    listed = set(re.findall(r"(\S+\.md)$", text, re.MULTILINE))
    found = {str(page.relative_to(pages)) for page in (*pages.glob("*.md"), *pages.glob("docs/*.md"))}
    if further := sorted(found - listed):
        text += "  - Further pages:\n" + "".join(f"      - {page}\n" for page in further)
    return text.replace("- Decisions: []", "- Decisions:\n" + "\n".join(lines))


def main(build: Path) -> None:
    shutil.rmtree(build, ignore_errors=True)
    pages = build / "pages"
    copy_sources(pages)
    (pages / "reference").mkdir()
    reference = {"commands": commands, "rest": rest, "settings": settings, "metrics": measured}
    for name, lines in reference.items():
        (pages / "reference" / f"{name}.md").write_text("\n".join(lines()) + "\n")
    (build / "mkdocs.yml").write_text(configuration(pages))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
