"""Works in a JupyterLab as a person does, in a real Chromium: ``python drive.py URL PICTURES``.

Runs in the environment that has playwright, not in ours. Prints what it saw as one line of JSON.
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
SECONDS = 1000  # playwright counts in milliseconds


def main(url: str, pictures: Path) -> None:
    sockets: dict[str, int] = {}
    failed: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(40 * SECONDS)

        def opened(socket) -> None:
            path = socket.url.partition("?")[0]
            sockets[path] = 0
            socket.on("framereceived", lambda _: sockets.__setitem__(path, sockets[path] + 1))

        page.on("websocket", opened)
        page.on("response", lambda r: failed.append(f"{r.status} {r.url}") if r.status >= 500 else None)
        page.goto(url)
        address = page.url
        try:
            page.locator(".Toastify >> text='No'").click()  # it asks about news
            output = notebook(page)
            page.screenshot(path=pictures / "notebook.png")
            terminal(page)
            page.screenshot(path=pictures / "terminal.png")
        except PlaywrightError:
            page.screenshot(path=pictures / "failed.png")
            raise
        cookies = [c for c in page.context.cookies() if c["name"] == "moorage-access-token"]
        seen = page.evaluate("document.cookie")
        browser.close()
    print(
        json.dumps(
            {
                "address": address, "output": output, "sockets": sockets, "failed": failed,
                "cookies": [[c["path"], c["httpOnly"], c["sameSite"]] for c in cookies], "scripts_see": seen,
            }
        )
    )  # fmt: skip


def notebook(page: Page) -> str:
    """Run a cell in a new notebook; what it printed.

    A notebook shows its kernel as idle before it is connected to it, and until then it takes a
    Shift+Enter for "move on" and runs nothing: as a person would, press again until a number or
    a star is in the brackets.
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
    """Type into a terminal. What it shows is drawn: the file that it writes can be read."""
    page.locator("#jp-MainMenu >> text=File").click()
    page.locator(".lm-Menu-itemLabel >> text=New").first.hover()
    page.locator(".lm-Menu-item[data-command='terminal:create-new']").click()
    page.locator(".jp-Terminal .xterm-screen").wait_for()
    page.locator(".jp-Terminal .xterm-screen").click()
    page.keyboard.type("PS1='$ '; clear; uname -sm; echo six times seven is $((6*7)) | tee proof.txt\n")
    page.wait_for_function(
        """async () => {
            const base = JSON.parse(document.getElementById('jupyter-config-data').textContent).baseUrl;
            return (await fetch(base + 'api/contents/proof.txt')).ok;
        }""",
        polling=300,
    )


main(sys.argv[1], Path(sys.argv[2]))
