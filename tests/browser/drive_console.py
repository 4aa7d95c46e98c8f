"""Operates the web console in a real Chromium: ``python drive_console.py URL KEY PICTURES``.

Runs in the environment with playwright and axe. Saves screenshots in PICTURES, and prints the
complaints of axe, the security policy and the browser's console as JSON.
"""

import json
import subprocess
import sys
from pathlib import Path

from console_page import CHROMIUM, WIDTHS, Console, confirm
from playwright.sync_api import Page, expect, sync_playwright


def make_group(console: Console, page: Page) -> None:
    console.go(page, "groups", "Resource groups")
    page.get_by_role("button", name="New resource group").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("gold")
    expect(dialog.get_by_label("When the first session does not fit").first).to_have_value(
        "backfill"
    )
    console.check(page, "group form")
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_role("link", name="gold")).to_be_visible()


def add_agent(console: Console, page: Page) -> str:
    """The page does not issue a join token: this platform's links have no TLS, so they need
    none."""
    console.go(page, "agents", "Agents")
    page.get_by_role("button", name="Add an agent").click()
    page.get_by_role("dialog").get_by_role("button", name="Create a join token").click()
    answer = page.get_by_role("dialog").get_by_role("alert").inner_text()
    page.keyboard.press("Escape")
    console.complaints.clear()  # the refusal is a 4xx
    return answer


def set_quota(console: Console, page: Page) -> None:
    console.go(page, "quotas", "Quotas")
    page.get_by_role("button", name="New quota").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("default")
    resources = dialog.get_by_label("Resources")
    resources.fill("cuda.device=6")
    resources.press("Enter")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_text("project default")).to_be_visible()


def set_budget(console: Console, page: Page) -> None:
    """The usage of this platform's sessions soon exceeds its soft limit."""
    console.go(page, "usage", "Usage and budgets")
    page.get_by_role("button", name="New budget").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("default")
    dialog.get_by_label("Soft limit").fill("0.001")
    dialog.get_by_label("Hard limit").fill("100")
    console.check(page, "budget form")
    dialog.get_by_role("button", name="Save").click()
    row = page.get_by_role("row").filter(has_text="Project default")
    expect(row.get_by_text("Above the soft limit")).to_be_visible()


def see_it_wait(console: Console, page: Page) -> str:
    """A waiting session shows the reason; a dry run shows where a session would be placed. Returns
    the reason."""
    console.go(page, "new-session", "New session")
    page.get_by_label("Command").fill("sleep 60")
    page.get_by_role("button", name="Dry run").click()
    page.get_by_text("Expected start").wait_for()
    console.go(page, "sessions?name=waits", "Sessions")
    page.get_by_role("link", name="waits").first.click()
    reason = page.locator(".why-text").inner_text()
    console.check(page, "session")
    page.get_by_role("tab", name="Timeline").click()
    page.locator(".timeline li").first.wait_for()
    page.screenshot(path=console.pictures / "session.png")

    return reason


def drain(console: Console, page: Page, agent: str) -> None:
    console.go(page, f"agents/{agent}", agent)
    page.get_by_role("button", name="Drain", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    console.check(page, "drain")
    page.screenshot(path=console.pictures / "drain.png")
    confirm(page, "Drain")
    page.get_by_text("Draining, started by").wait_for()
    page.get_by_role("button", name="Uncordon").click()
    expect(page.get_by_text("Draining, started by")).to_have_count(0)


def roll_out(console: Console, page: Page) -> None:
    console.go(page, "endpoints/tiny", "tiny")
    page.get_by_role("link", name="Change and roll out").click()
    page.locator("summary").filter(has_text="Environment and secrets").click()
    page.get_by_role("button", name="Add a variable").click()
    page.get_by_role("group", name="Environment variables").get_by_label("Name").fill("ROUND")
    page.get_by_role("group", name="Environment variables").get_by_label("Value").fill("2")
    page.get_by_role("button", name="Roll out").click()
    expect(page.get_by_role("heading", name="tiny", exact=True)).to_be_visible()
    page.get_by_role("tab", name="Revisions").click()
    expect(page.get_by_text("2 (current)")).to_be_visible()
    console.check(page, "endpoint")


def chat(console: Console, page: Page) -> str:
    """The model's answer."""
    console.go(page, "endpoints/tiny", "tiny")
    page.get_by_label("Message").fill("Hello")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".chat > div").last).not_to_have_text("…")
    console.complaints.clear()  # 401 until the proxies have received the new key
    return page.locator(".chat > div").last.inner_text()


def revoke_key(console: Console, page: Page) -> None:
    console.go(page, "keys", "API keys")
    row = page.get_by_role("row").filter(has_text="spare")
    row.get_by_role("button", name="Revoke").click()
    confirm(page, "Revoke")
    expect(page.get_by_role("row").filter(has_text="spare")).to_have_count(0)


def register_ssh_key(console: Console, page: Page) -> None:
    """With the output of the shown command, run on the machine that has the private key."""
    file = console.pictures / "id"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "pc", "-f", str(file)], check=True
    )
    console.go(page, "keys", "API keys")
    page.get_by_role("button", name="Add a public key").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Public key").fill(file.with_suffix(".pub").read_text())
    line = (
        dialog.locator(".command-line").inner_text().replace("~/.ssh/id_ed25519.pub", f"{file}.pub")
    )
    signed = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout
    dialog.get_by_label("Signature").fill(signed)
    console.check(page, "ssh-key")
    confirm(page, "Add a public key")
    row = page.get_by_role("row").filter(has_text="pc")
    expect(row).to_be_visible()
    row.get_by_role("button", name="Remove").click()
    confirm(page, "Remove")
    expect(page.get_by_role("row").filter(has_text="SHA256:")).to_have_count(0)


def take_pictures(console: Console) -> None:
    """axe checks every page in both themes and widths; people look at two of them, in
    docs/console."""
    pages = {
        "overview": ("", "Overview"),
        "group": ("groups/default", "default"),
        "groups": ("groups", "Resource groups"),
        "agents": ("agents", "Agents"),
        "agent": (f"agents/{AGENT}", AGENT),
        "sessions": ("sessions", "Sessions"),
        "pipelines": ("pipelines", "Pipelines"),
        "pipeline": ("pipelines/digits", "digits"),
        "endpoints": ("endpoints", "Endpoints"),
        "endpoint": ("endpoints/tiny", "tiny"),
        "catalog": ("catalog", "Model catalogue"),
        "templates": ("templates", "Templates"),
        "new-template": ("new-template", "New template"),
        "new-pipeline": ("new-pipeline", "New pipeline"),
        "new-session": ("new-session", "New session"),
        "new-endpoint": ("new-endpoint", "New endpoint"),
        "users": ("users", "Users"),
        "projects": ("projects", "Projects"),
        "keys": ("keys", "API keys"),
        "quotas": ("quotas", "Quotas"),
        "usage": ("usage", "Usage and budgets"),
        "audit": ("audit", "Audit"),
        "secrets": ("secrets", "Secrets"),
        "prices": ("prices", "Prices"),
        "workspaces": ("workspaces", "Workspaces"),
        "connections": ("connections", "Connections"),
    }
    for scheme in ("light", "dark"):
        for width in WIDTHS:
            page = console.open(scheme, width)
            console.sign_in(page)
            for name, (path, heading) in pages.items():
                console.go(page, path, heading)
                expect(page.locator("[aria-busy=true]")).to_have_count(0)
                console.check(page, f"{name} {scheme} {width}")
                page.screenshot(path=console.pictures / f"{name}-{scheme}-{width}.png")

            page.context.close()


AGENT = "sim-0"


def main(url: str, key: str, pictures: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        console = Console(browser, url, key, pictures)
        page = console.open()
        try:
            console.sign_in(page)
            make_group(console, page)
            joining = add_agent(console, page)
            set_quota(console, page)
            set_budget(console, page)
            reason = see_it_wait(console, page)
            drain(console, page, AGENT)
            answer = chat(console, page)
            roll_out(console, page)
            revoke_key(console, page)
            register_ssh_key(console, page)
            take_pictures(console)
        except Exception:
            page.screenshot(path=pictures / "failed.png")
            raise

        browser.close()

    seen = {
        "joining": joining,
        "reason": reason,
        "answer": answer,
        "complaints": console.complaints,
        "axe": console.axe,
    }
    print(json.dumps(seen))


main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
