"""The web console's bundle: it is small, and names neither foreign hosts nor its own place."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

from moorage.manager.console.files import BUNDLE

FIRST_LOAD_KIB = 400


def test_first_load_is_small() -> None:
    """The page with everything that it requests before it shows anything."""
    page = (BUNDLE / "index.html").read_text()
    names = re.findall(r'(?:src|href)="\./([^"]+)"', page)
    # The overview, which is loaded next.
    names += [f"assets/{file.name}" for file in Path(BUNDLE / "assets").glob("Overview-*.js")]
    assert len(names) > 5
    size = sum(len(gzip.compress((BUNDLE / name).read_bytes(), 9)) for name in names)
    assert size < FIRST_LOAD_KIB * 1024


def test_bundle_names_no_foreign_host() -> None:
    """Addresses in it are namespaces, and links in library messages, never something that is
    loaded."""
    for file in BUNDLE.rglob("*"):
        if file.suffix in (".css", ".html"):
            hosts = set(re.findall(r"https?://([^/\"'\s)]+)", file.read_text()))
            assert hosts <= {"www.w3.org"}, file.name


def test_bundle_does_not_say_where_it_is_served() -> None:
    """A web server in front may serve it below any path, so it names its own place nowhere."""
    for file in BUNDLE.rglob("*"):
        if file.suffix in (".css", ".html", ".js"):
            assert not re.findall(r"""["'`(=]/console\b.{20}""", file.read_text()), file.name
