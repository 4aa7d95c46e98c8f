"""Drafts of forms, and the locale of the reader, in the web console: ``python drive_drafts.py URL
KEY PICTURES``.

A draft survives a reload and an expired session, has no secrets, and ends when it is sent or
discarded, or when the user signs out. Prints what a German reader sees, and the errors, as JSON.
"""

import json
import sys
from pathlib import Path

from console_page import CHROMIUM, Console
from form_page import field
from playwright.sync_api import Page, expect, sync_playwright

KEPT = "Your draft is back"
SECRET = "a-value-that-nobody-must-see"
STORED = "JSON.stringify(Object.entries(sessionStorage))"


def sign_in(console: Console, page: Page) -> None:
    page.locator("input[type=password]").fill(console.key)
    page.get_by_role("button", name="Sign in", exact=True).click()


def write(page: Page, name: str) -> None:
    field(page, "Name").fill(name)
    page.locator("summary").filter(has_text="Environment and secrets").click()
    page.get_by_role("button", name="Add a variable").click()
    variables = page.get_by_role("group", name="Environment variables")
    variables.get_by_label("Name").fill("PLACE")
    variables.get_by_label("Value").fill(SECRET)


def session(console: Console, page: Page) -> None:
    """Reload, new sign-in, discard."""
    console.go(page, "new-session", "New session")
    write(page, "drafted")
    page.reload()
    expect(page.get_by_text(KEPT)).to_be_visible()
    expect(page.get_by_text("env.PLACE")).to_be_visible()
    expect(field(page, "Name")).to_have_value("drafted")
    assert "drafted" in page.evaluate(STORED)
    assert SECRET not in page.evaluate(STORED)
    console.check(page, "draft")
    page.screenshot(path=console.pictures / "draft.png", full_page=True)

    page.context.clear_cookies()
    page.reload()
    sign_in(console, page)
    expect(page.get_by_text(KEPT)).to_be_visible()
    console.complaints.clear()  # "Who am I?" was 401
    page.get_by_role("button", name="Discard the draft").click()
    expect(page.get_by_text(KEPT)).to_have_count(0)
    expect(field(page, "Name")).to_have_value("")
    page.reload()
    expect(page.get_by_role("heading", name="New session", level=1)).to_be_visible()
    expect(page.get_by_text(KEPT)).to_have_count(0)


def sent(console: Console, page: Page) -> None:
    """What was created is no draft any more."""
    console.go(page, "new-session", "New session")
    field(page, "Name").fill("sent")
    page.get_by_label("Command").fill("sleep 1000")
    field(page, "CPU").fill("1.5")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("heading", name="sent", level=1)).to_be_visible()
    assert "sent" not in page.evaluate(STORED)


def endpoint(console: Console, page: Page) -> None:
    """Another page has another draft; signing out deletes both."""
    console.go(page, "new-endpoint", "New endpoint")
    field(page, "Name").fill("model")
    page.reload()
    expect(page.get_by_text(KEPT)).to_be_visible()
    expect(field(page, "Name")).to_have_value("model")
    assert console.complaints == []
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert "moorage.draft" not in page.evaluate(STORED)


def german(console: Console) -> dict[str, str]:
    """A number in a list, and the date in the title of an age."""
    context = console.browser.new_context(locale="de-DE", viewport={"width": 1920, "height": 800})
    page = context.new_page()
    page.goto(f"{console.url}/console/sessions")
    sign_in(console, page)
    row = page.get_by_role("row").filter(has_text="sent")
    cell = row.locator("td[data-label=Requested]")
    expect(cell).to_be_visible()
    created = row.locator("td[data-label=Created] time").get_attribute("title") or ""
    found = {"requested": cell.inner_text(), "created": created}
    context.close()
    return found


def main(url: str, key: str, pictures: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        console = Console(browser, url, key, pictures)
        page = console.open()
        try:
            console.sign_in(page)
            session(console, page)
            sent(console, page)
            endpoint(console, page)
            page.context.close()
            console.complaints.clear()  # the stream of events ends with the session
            seen = german(console)
        except Exception:
            page.screenshot(path=pictures / "failed.png")
            raise

        browser.close()

    print(json.dumps(seen | {"complaints": console.complaints, "axe": console.axe}))


main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
