"""The web console's bundle: it is small, and names neither foreign hosts nor its own place."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

from moorage.manager.console.files import BUNDLE

FIRST_LOAD_KIB = 210
# The page and its files need no more connections than a browser opens to a host.
FIRST_FILES = 6


def test_first_load_is_small() -> None:
    """The page with everything that it requests before it shows anything, and the overview, which
    is a part of it."""
    page = (BUNDLE / "index.html").read_text()
    names = re.findall(r'(?:src|href)="\./([^"]+)"', page)
    assert 3 < len(names) <= FIRST_FILES
    assert not list(Path(BUNDLE / "assets").glob("Overview-*.js"))
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
