"""Opens a node whose GPU fails in the web console: ``python drive_gpus.py URL KEY PICTURES AGENT
DEVICE``.

Prints the health shown in the device's row, and the errors, as JSON.
"""

import json
import sys
from pathlib import Path

from console_page import CHROMIUM, Console
from playwright.sync_api import expect, sync_playwright


def main(url: str, key: str, pictures: str, agent: str, *, device: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        console = Console(browser, url, key, Path(pictures))
        page = console.open()
        console.sign_in(page)
        console.go(page, f"agents/{agent}", agent)
        row = page.get_by_role("row").filter(has_text=device)
        expect(row).to_contain_text("the driver")
        console.check(page, "agent")
        page.screenshot(path=Path(pictures) / "failing-gpu.png")
        seen = {"row": row.inner_text(), "axe": console.axe, "complaints": console.complaints}
        browser.close()

    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:5], device=sys.argv[5])
