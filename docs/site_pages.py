"""Pages of the site of the documents: ``python docs/site_pages.py BUILD``, before MkDocs in ``make
docs``.

Below ``BUILD/pages`` it lays what the documents link to as it lies in the repository, so that their
links are links of the site, and the pages of ``reference.py``. ``BUILD/mkdocs.yml`` is
``docs/mkdocs.yml`` with the decisions and all further pages in its navigation.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import reference
import yaml

ROOT = Path(__file__).resolve().parents[1]
# What is shown, and what documents link to.
SOURCES = (
    *("docs", "deploy", "examples", "protos", "benchmarks"),
    *("console/README.md", "src/moorage/manager/console/bundle/licenses.md"),
)
_LINK = re.compile(r"(\[[^\]\n]*\]\()([^)#\s]+)(#[^)\s]*)?\)")
_LEFT_OUT = shutil.ignore_patterns(
    "__pycache__", "results", "*.pyc", "node_modules", "requirements.lock"
)


def copy_sources(pages: Path) -> None:
    for name in (*SOURCES, *(path.name for path in ROOT.glob("*.md")), "LICENSE"):
        source = ROOT / name
        target = pages / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=_LEFT_OUT)
        elif source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)

    for page in pages.rglob("*.md"):
        page.write_text(with_links_of_the_site(page))


def add_search_words(pages: Path) -> None:
    """Give each page front matter for the search: its weight, and further words that find it."""
    search = yaml.safe_load((ROOT / "docs" / "search.yml").read_text())
    for page in pages.rglob("*.md"):
        name = str(page.relative_to(pages))
        weight = next(
            number for start, number in search["weights"].items() if name.startswith(start)
        )
        how = {"boost": weight} if weight else {"exclude": True}
        matter = {"search": how, "tags": search["words"].get(name, [])}
        page.write_text(f"---\n{json.dumps(matter)}\n---\n{page.read_text()}")


def with_links_of_the_site(page: Path) -> str:
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


def link_reference(overview: Path) -> None:
    """Make each heading of the overview a link to its page."""

    def link(match: re.Match[str]) -> str:
        name = match[1].lower().replace(" ", "-")
        return f"## [{match[1]}](../reference/{name}.md)"

    overview.write_text(re.sub(r"(?m)^## (.+)$", link, overview.read_text()))


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
    found = {
        str(page.relative_to(pages)) for page in (*pages.glob("*.md"), *pages.glob("docs/*.md"))
    }
    if further := sorted(found - listed):
        text += "  - Further pages:\n" + "".join(f"      - {page}\n" for page in further)

    return text.replace("- Decisions: []", "- Decisions:\n" + "\n".join(lines))


def main(build: Path) -> None:
    shutil.rmtree(build, ignore_errors=True)
    pages = build / "pages"
    copy_sources(pages)
    link_reference(pages / "docs" / "reference.md")
    reference.write(pages / "reference")
    navigation = configuration(pages)
    add_search_words(pages)
    (build / "mkdocs.yml").write_text(navigation)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
