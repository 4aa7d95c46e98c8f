"""Opens pages of the web console in both themes and several widths: ``python drive_gallery.py URL
KEY FOLDER``, with the pages as JSON on stdin.

Saves a picture of each screen in FOLDER, and prints the faults of each as JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from console_page import CHROMIUM, Console
from playwright.sync_api import Page, expect, sync_playwright

FAULTS = Path(__file__).with_name("screen_faults.js").read_text()
HEIGHT = 800
HIGHEST = 2400  # of a picture
NARROW = 360
# The next frame, after observers of sizes have drawn: charts, and lists that show what has room.
DRAWN = """() => new Promise((done) =>
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 60))))"""


class Gallery:
    """Screens of one installation, and their faults."""

    def __init__(self, console: Console, page: Page, asked: dict[str, Any]) -> None:
        self._console = console
        self._page = page
        self._asked = asked
        self.screens: list[dict[str, Any]] = []

    def look(self, name: str) -> None:
        """The present page in all themes and widths."""
        for scheme in self._asked["schemes"]:
            for width in self._asked["widths"]:
                self._page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
                self._page.set_viewport_size({"width": width, "height": HEIGHT})
                self._page.evaluate(DRAWN)
                expect(self._page.locator("[aria-busy=true]")).to_have_count(0)
                self._keep(name, scheme, width)

    def _keep(self, name: str, scheme: str, width: int) -> None:
        faults = self._page.evaluate(FAULTS, {"touch": width == NARROW})
        if self._asked["axe"]:
            faults += serious(self._page)

        # A simulated kernel has no files.
        refused = name in self._asked["absent"] or name.endswith(".files")
        refusal = "404" if refused else None
        faults += [one for one in self._console.complaints if refusal is None or refusal not in one]
        self._console.complaints.clear()
        file = f"{name}-{scheme}-{width}.png"
        if self._asked["pictures"]:
            height = self._page.evaluate("document.documentElement.scrollHeight")
            clip = {"x": 0, "y": 0, "width": width, "height": min(height, HIGHEST)}
            self._page.screenshot(path=self._console.pictures / file, full_page=True, clip=clip)

        self.screens.append(
            {"page": name, "scheme": scheme, "width": width, "file": file, "faults": faults}
        )

    def open(self, name: str, path: str) -> None:
        self._page.set_viewport_size({"width": 1280, "height": HEIGHT})
        self._page.goto(f"{self._console.url}/console/{path}")
        self._page.locator("#content h1, #content [role=alert]").first.wait_for()
        expect(self._page.locator("[aria-busy=true]")).to_have_count(0)
        self.look(name)
        tabs = self._page.locator("#content [role=tab]")
        for index in range(1, tabs.count() if self._asked["tabs"] else 0):
            label = tabs.nth(index).inner_text().strip().lower().replace(" ", "-")
            tabs.nth(index).click()
            self.look(f"{name}.{label}")


def serious(page: Page) -> list[str]:
    return [
        f"axe: {found['id']}: {found['nodes'][0]['html'][:160]}"
        for found in Axe().run(page).response["violations"]
        if found["impact"] in ("serious", "critical")
    ]


def main(url: str, key: str, pictures: Path) -> None:
    asked = json.load(sys.stdin)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        console = Console(browser, url, key, pictures)
        page = console.open()
        console.sign_in(page)
        gallery = Gallery(console, page, asked)
        for name, path in asked["pages"].items():
            try:
                gallery.open(name, path)
            except Exception:
                page.screenshot(path=pictures / "failed.png")
                raise

        browser.close()

    print(json.dumps(gallery.screens))


main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
