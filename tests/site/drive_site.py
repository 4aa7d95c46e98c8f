"""Reads the built site in a real Chromium: ``python drive_site.py HTML``.

HTML is the directory of the site, and standard input a JSON list of questions for its search.
Prints its observations as JSON. Runs in the environment with playwright.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = "/usr/bin/chromium"
SECONDS = 1000  # playwright expects milliseconds
WIDE = {"width": 1440, "height": 900}
NARROW = {"width": 360, "height": 780}
# What is wider than the frame around it, and thus cut or scrolled.
TOO_WIDE = """() => ({
  page: document.documentElement.scrollWidth > innerWidth,
  tables: [...document.querySelectorAll('.md-typeset table')].filter((table) => {
    const frame = table.closest('.md-typeset__scrollwrap');
    return frame.scrollWidth > frame.clientWidth;
  }).map((table) => table.innerText.slice(0, 60)),
  still: [...document.querySelectorAll('.md-typeset__scrollwrap')]
    .filter((frame) => getComputedStyle(frame).overflowX !== 'auto').length,
})"""
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


def answers(page: Page, question: str) -> list[str]:
    """The pages that the search shows, in their order, as paths below the site."""
    box = page.get_by_role("textbox", name="Search")
    shown = page.locator(".md-search-result__meta")
    box.clear()
    box.press("End")
    expect(shown).to_have_text("Type to start searching")
    box.fill(question[:-1])
    box.press(question[-1])  # the search reads the box when a key is released
    expect(shown).to_contain_text("matching document")

    links = page.locator(".md-search-result__item > .md-search-result__link")
    root = page.url.rpartition("/")[0] + "/"
    found = [link.get_attribute("href") or "" for link in links.all()[:20]]
    paths = [address.removeprefix(root).partition("?")[0].partition("#")[0] for address in found]
    return [*dict.fromkeys(paths)]


def too_wide(page: Page, html: Path) -> Iterator[str]:
    """Pages and tables that do not fit. On a narrow screen, tables may scroll."""
    for path in sorted(html.rglob("*.html")):
        if "<table>" not in path.read_text():
            continue

        name = str(path.relative_to(html))
        page.set_viewport_size(WIDE)
        page.goto(path.as_uri(), wait_until="domcontentloaded")
        seen = page.evaluate(TOO_WIDE)
        yield from (f"{name}: {table}" for table in seen["tables"])
        page.set_viewport_size(NARROW)
        narrow = page.evaluate(TOO_WIDE)
        if seen["page"] or narrow["page"] or narrow["still"]:
            yield name


def look(browser: Browser, index: str) -> dict[str, object]:
    """What the reader of a page sees: the search, colours of code, and the theme of the system."""
    seen: dict[str, object] = {}
    for scheme in ("light", "dark"):
        page = browser.new_page(viewport=WIDE, color_scheme=scheme)
        page.goto(index)
        seen[scheme] = page.evaluate(BACKGROUND)
        page.close()

    page = browser.new_page(viewport=WIDE, color_scheme="light")
    page.goto(index)
    expect(page.get_by_role("textbox", name="Search")).to_be_in_viewport()
    page.get_by_title("Switch to light mode").click()
    page.get_by_title("Switch to dark mode").click()
    seen["chosen"] = page.evaluate(BACKGROUND)
    seen["copy"] = page.get_by_title("Copy to clipboard").count()
    seen["colours"] = page.evaluate(
        "new Set([...document.querySelectorAll('.highlight code span')]"
        ".map((part) => getComputedStyle(part).color)).size"
    )
    page.close()
    return seen


def main(html: Path) -> None:
    index = (html / "docs" / "tutorial.html").as_uri()
    requested: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport=WIDE)
        page.set_default_timeout(30 * SECONDS)
        page.on("request", lambda request: requested.append(request.url))
        cut = [*too_wide(page, html)]

        page.set_viewport_size(WIDE)
        page.goto((html / "index.html").as_uri())
        page.get_by_role("textbox", name="Search").click()
        found = {question: answers(page, question) for question in json.load(sys.stdin)}
        seen = look(browser, index)
        browser.close()

    away = sorted({address for address in requested if not address.startswith("file:")})
    print(json.dumps({"found": found, "away": away, "cut": cut, **seen}))


main(Path(sys.argv[1]))
