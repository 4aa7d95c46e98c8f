"""Opens the web console below a path of a web server: ``python drive_front.py URL KEY PICTURES``.

``URL``: of the manager behind it. Prints what it has seen as JSON.
"""

import json
import re
import sys
from pathlib import Path

from console_page import CHROMIUM, Console
from playwright.sync_api import Page, expect, sync_playwright


def main(url: str, key: str, pictures: Path) -> None:
    everywhere = "--host-resolver-rules=MAP * 127.0.0.1"
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--ignore-certificate-errors"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=[*arguments, everywhere]
        )
        console = Console(browser, url, key, pictures)
        page = console.open()
        requested: list[str] = []
        page.on("request", lambda request: requested.append(request.url))
        try:
            console.sign_in(page)
            page.get_by_role("link", name="Endpoints").click()
            page.get_by_role("link", name="tiny").click()
            answer = ask(page)
            at = page.url
            page.reload()
            expect(page.get_by_role("heading", name="tiny", level=1)).to_be_visible()
            shell(console, page)
        except Exception:
            page.screenshot(path=pictures / "failed.png")
            print("complaints:", console.complaints, file=sys.stderr)
            raise

        cookies = [[cookie["name"], cookie["secure"]] for cookie in page.context.cookies()]
        browser.close()

    print(
        json.dumps(
            {
                "address": at,
                "answer": answer,
                "complaints": console.complaints,
                "cookies": cookies,
                "elsewhere": [one for one in requested if not one.startswith((f"{url}/", "data:"))],
            }
        )
    )


def ask(page: Page) -> str:
    page.get_by_label("Message").fill("Hello")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".chat > div").last).to_contain_text("7")
    return page.locator(".chat > div").last.inner_text()


def shell(console: Console, page: Page) -> None:
    # Before the chat's key is known to the proxies, they answer 401.
    console.complaints[:] = [one for one in console.complaints if "401" not in one]
    console.go(page, "sessions/app", "app")
    page.get_by_role("tab", name="Terminal").click()
    rows = page.locator(".terminal .xterm-rows")
    expect(rows).to_contain_text(re.compile("[#$] *$"))
    page.keyboard.type("echo six-$((3+4))\n")
    expect(rows).to_contain_text("six-7")


main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
