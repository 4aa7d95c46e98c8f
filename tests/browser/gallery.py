"""Pictures of every page of the web console, and the faults that a program can see in them:
``python -m tests.browser.gallery FOLDER``.

Opens every route in both themes and four widths on three installations: without nodes, with three,
and with 300 nodes and 1,000 sessions. The last two have a day of history. FOLDER/index.html is a
contact sheet with a row for each page, in which screens with faults are marked; FOLDER/faults.json
lists the faults.
"""

from __future__ import annotations

import argparse
import asyncio
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.harness import Platform

from . import installations

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(os.environ.get("MOORAGE_BROWSER_VENV", ROOT / ".venv-browser")) / "bin"
ROUTER = ROOT / "console" / "src" / "app" / "router.tsx"
SCHEMES = ("light", "dark")
WIDTHS = (360, 768, 1280, 1920)
DAY_HOURS = 24
# What the parameters of a route are on an installation with nodes.
NAMES = {
    "/groups/$name": "default",
    "/agents/$id": "sim-0",
    "/sessions/$ref": "waits",
    "/pipelines/$ref": "digits",
    "/cron-jobs/$ref": "report",
    "/templates/$name": "train",
    "/endpoints/$name": "tiny",
    "/projects/$name": "default",
}
# The objects that exist before anything is created; other pages say that there is no such object.
FIRST = {"/groups/$name", "/projects/$name"}
ABSENT = "no-such-name"


@dataclass(frozen=True)
class Look:
    """What to look at: ``pages`` by name; ``absent`` are those of objects that do not exist."""

    pages: Mapping[str, str]
    absent: frozenset[str] = frozenset()
    schemes: tuple[str, ...] = SCHEMES
    widths: tuple[int, ...] = WIDTHS
    tabs: bool = True
    axe: bool = True
    pictures: bool = True

    def asked(self) -> str:
        return json.dumps(
            {
                "pages": dict(self.pages),
                "absent": sorted(self.absent),
                "schemes": self.schemes,
                "widths": self.widths,
                "tabs": self.tabs,
                "axe": self.axe,
                "pictures": self.pictures,
            }
        )


def routes() -> list[str]:
    """The paths of the console's router, such as ``/agents/$id``."""
    source = ROUTER.read_text()
    found = re.findall(r'^  path: "(/[^"]*)",$', source, re.MULTILINE)
    assert len(found) == source.count("createRoute({"), "a route has no path, or in another form"
    return found


def everything(*, furnished: bool, nodes: int = 1) -> Look:
    """All pages. ``furnished``: the objects in ``NAMES`` exist. ``nodes``: simulated nodes, whose
    names have as many digits as they need."""
    names = NAMES | {"/agents/$id": f"sim-{0:0{len(str(nodes - 1))}}"}
    pages = {}
    absent = set()
    for route in routes():
        path = route
        name = route.strip("/").replace("/", ".").replace("$", "") or "overview"
        for prefix, value in names.items():
            if route == prefix or route.startswith(f"{prefix}/"):
                exists = furnished or prefix in FIRST
                path = re.sub(r"\$\w+", value if exists else ABSENT, route)
                if not exists:
                    absent.add(name)

        assert "$" not in path, f"name an object for the route {route} in NAMES"
        pages[name] = path.strip("/")

    return Look(pages, frozenset(absent))


def look(platform: Platform, folder: Path, asked: Look) -> list[dict[str, Any]]:
    """The screens with their faults. Their pictures are in ``folder``."""
    script = Path(__file__).with_name("drive_gallery.py")
    command = [str(TOOLS / "python"), str(script), platform.url, platform.key, str(folder)]
    done = subprocess.run(
        command, input=asked.asked(), capture_output=True, text=True, timeout=3600, check=False
    )
    assert done.returncode == 0, done.stderr
    screens: list[dict[str, Any]] = json.loads(done.stdout)
    return screens


def faults_of(screens: list[dict[str, Any]]) -> list[str]:
    return [
        f"{screen['page']} {screen['scheme']} {screen['width']}: {fault}"
        for screen in screens
        for fault in screen["faults"]
    ]


@contextmanager
def started(folder: Path) -> Iterator[Platform]:
    """A manager whose state is in a new folder in ``folder``."""
    home = Path(tempfile.mkdtemp(prefix="gallery-", dir=folder))
    home.chmod(0o711)
    platform = Platform(home)
    platform.env["MOORAGE_MANAGER__OPENAI_URL"] = platform.openai_url
    platform.start("manager")
    try:
        yield platform
    finally:
        platform.close()
        shutil.rmtree(home)


async def prepare(platform: Platform, name: str, nodes: int) -> None:
    await platform.wait_until_ready()
    if name == "none":
        return

    await installations.furnish(platform, DAY_HOURS, nodes)
    await installations.possess(platform)
    if name == "many":
        await installations.crowd(platform)


def index(screens: Mapping[str, list[dict[str, Any]]]) -> str:
    """A page with all pictures: a row for each page of each installation."""
    rows = []
    for name, found in screens.items():
        for page in dict.fromkeys(screen["page"] for screen in found):
            shown = [screen for screen in found if screen["page"] == page]
            rows.append(f"<h2>{html.escape(f'{name}: {page}')}</h2><div>")
            for screen in shown:
                title = html.escape(
                    f"{screen['scheme']} {screen['width']}\n" + "\n".join(screen["faults"])
                )
                mark = ' class="bad"' if screen["faults"] else ""
                file = html.escape(f"{name}/{screen['file']}")
                picture = f'<img src="{file}" title="{title}" alt="{title}" loading="lazy">'
                rows.append(f'<a href="{file}"{mark}>{picture}</a>')

            rows.append("</div>")

    style = (
        "body{font:14px sans-serif;background:#888}div{display:flex;gap:8px;flex-wrap:wrap}"
        "img{height:360px;max-width:640px}.bad img{outline:4px solid red}"
    )
    return f"<!doctype html><title>Gallery</title><style>{style}</style>" + "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="for pictures and index.html")
    parser.add_argument("--installations", nargs="+", default=["none", "few", "many"])
    parser.add_argument("--pages", nargs="*", help="names, such as sessions; default: all")
    given = parser.parse_args()
    screens = {}
    for name in given.installations:
        folder = given.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        nodes = installations.NODES if name == "many" else 3
        asked = everything(furnished=name != "none", nodes=nodes)
        if given.pages:
            chosen = {page: asked.pages[page] for page in given.pages}
            asked = Look(chosen, asked.absent)

        with started(Path(tempfile.gettempdir())) as platform:
            asyncio.run(prepare(platform, name, nodes))
            screens[name] = look(platform, folder, asked)

        found = faults_of(screens[name])
        print(f"{name}: {len(screens[name])} screens, {len(found)} faults")
        print("\n".join(found))

    (given.folder / "index.html").write_text(index(screens))
    (given.folder / "faults.json").write_text(json.dumps(screens, indent=1))
    return 1 if any(faults_of(found) for found in screens.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
