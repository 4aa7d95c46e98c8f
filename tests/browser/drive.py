"""Operates JupyterLab in a real Chromium as a user would: ``python drive.py URL PICTURES``.

Runs in the environment with playwright. Saves screenshots in PICTURES and prints its observations
as JSON.
"""

import json
import sys
from pathlib import Path

from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page, sync_playwright

CHROMIUM = "/usr/bin/chromium"
CODE = (
    "import os\n"
    "print('six times seven is', 6 * 7)\n"
    "sorted(name for name in os.environ if name.startswith('MOORAGE_P'))"
)
SECONDS = 1000  # playwright expects milliseconds


def main(url: str, pictures: Path) -> None:
    sockets: dict[str, int] = {}
    failed: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(40 * SECONDS)

        def on_websocket(socket) -> None:
            path = socket.url.partition("?")[0]
            sockets[path] = 0
            socket.on("framereceived", lambda _: sockets.__setitem__(path, sockets[path] + 1))

        page.on("websocket", on_websocket)
        page.on(
            "response", lambda r: failed.append(f"{r.status} {r.url}") if r.status >= 500 else None
        )
        page.goto(url)
        address = page.url

        try:
            page.locator(
                ".Toastify >> text='No'"
            ).click()  # JupyterLab asks whether it may fetch news
            output = notebook(page)
            page.screenshot(path=pictures / "notebook.png")
            terminal(page)
            page.screenshot(path=pictures / "terminal.png")
        except PlaywrightError:
            page.screenshot(path=pictures / "failed.png")
            raise

        cookies = [c for c in page.context.cookies() if c["name"] == "moorage-access-token"]
        script_cookies = page.evaluate("document.cookie")
        browser.close()

    print(
        json.dumps(
            {
                "address": address, "output": output, "sockets": sockets, "failed": failed,
                "cookies": [[c["path"], c["httpOnly"], c["sameSite"]] for c in cookies],
                "script_cookies": script_cookies,
            }
        )
    )  # fmt: skip


def notebook(page: Page) -> str:
    """Run a cell in a new notebook, and return its output.

    A notebook shows its kernel as idle before it has connected to the kernel, and until then
    Shift+Enter only selects the next cell. So this presses the keys again until the cell's brackets
    show a number or an asterisk.
    """
    page.locator('.jp-LauncherCard[data-category="Notebook"]').first.click()
    page.locator('.jp-NotebookPanel [data-status="idle"]').first.wait_for()
    cell = page.locator(".jp-NotebookPanel .jp-CodeCell").first
    cell.locator(".cm-content").click()
    page.keyboard.insert_text(CODE)

    for _ in range(40):
        cell.locator(".cm-content").click()
        page.keyboard.press("Shift+Enter")
        page.wait_for_timeout(1 * SECONDS)
        if cell.locator(".jp-InputPrompt").inner_text() != "[ ]:":
            break

    page.locator(".jp-NotebookPanel .jp-OutputArea-executeResult").first.wait_for()
    return page.locator(".jp-NotebookPanel .jp-OutputArea").first.inner_text()


def terminal(page: Page) -> None:
    """Type into a terminal. The terminal is drawn on a canvas, so the test reads a file that the
    command writes."""
    page.locator("#jp-MainMenu >> text=File").click()
    page.locator(".lm-Menu-itemLabel >> text=New").first.hover()
    page.locator(".lm-Menu-item[data-command='terminal:create-new']").click()
    page.locator(".jp-Terminal .xterm-screen").wait_for()
    page.locator(".jp-Terminal .xterm-screen").click()
    page.keyboard.type(
        "PS1='$ '; clear; uname -sm; echo six times seven is $((6*7)) | tee proof.txt\n"
    )
    page.wait_for_function(
        """async () => {
            const base = JSON.parse(document.getElementById('jupyter-config-data').textContent).baseUrl;
            return (await fetch(base + 'api/contents/proof.txt')).ok;
        }""",
        polling=300,
    )


main(sys.argv[1], Path(sys.argv[2]))
