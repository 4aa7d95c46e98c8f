"""Operates the web console through outages and an upgrade: ``python drive_outage.py URL KEY
PICTURES``.

The manager stops while a page is open, a file of the console is missing, the manager is upgraded,
answers slowly or with errors, names are hostile, a session ends under its dialog, and a user loses
rights. Prints a line for each moment at which the test has to act, waits for a line from it, and
prints what it has seen as JSON at the end.
"""

import json
import re
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from console_page import CHROMIUM, Console
from playwright.sync_api import Page, Route, expect, sync_playwright

PART = "**/assets/{}-*.js*"  # also with the query of another try
# 200 characters: markup, right-to-left letters, a character that reverses what follows.
HOSTILE = ("<img src=x onerror=alert(1)>" + "\u05d0\u05d1\u05d2" + "\u202e" + "x" * 200)[:128]


def call(console: Console, method: str, path: str, body: object = None) -> Any:
    """A call by another administrator."""
    given = {"Authorization": f"Bearer {console.key}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(console.url + path, data, given, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())


def ask(moment: str) -> None:
    """Ask the test to do something, and wait until it has done it."""
    print(moment, flush=True)
    sys.stdin.readline()


def menu(page: Page, name: str) -> None:
    page.get_by_role("navigation").get_by_role("link", name=name, exact=True).click()


def away(console: Console, page: Page) -> None:
    """A page whose code is not loaded yet, while the manager is away: it follows the manager."""
    page.route(PART.format("Quotas"), lambda route: route.abort())  # no preloading
    console.go(page, "agents", "Agents")
    ask("stop")
    expect(page.get_by_role("alert").filter(has_text="has not answered since")).to_be_visible()
    menu(page, "Quotas")
    expect(page.get_by_role("alert").filter(has_text="The console keeps trying")).to_have_count(2)
    expect(page.get_by_role("navigation")).to_be_visible()
    console.check(page, "page without its code")
    page.screenshot(path=console.pictures / "away.png")
    page.unroute(PART.format("Quotas"))
    ask("start")
    expect(page.get_by_role("heading", name="Quotas", level=1)).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    console.complaints.clear()  # requests that were not answered


def missing(console: Console, page: Page) -> None:
    """A file that does not arrive although the manager answers, until it does."""
    console.go(page, "agents", "Agents")
    page.route(PART.format("Audit"), lambda route: route.abort())
    menu(page, "Audit")
    problem = page.get_by_role("alert").filter(has_text="could not be loaded")
    expect(problem).to_be_visible()
    page.unroute(PART.format("Audit"))
    problem.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("heading", name="Audit", level=1)).to_be_visible()
    console.complaints.clear()


def upgraded(console: Console, page: Page) -> int:
    """How often a page is loaded again whose files are gone after an upgrade."""
    page.route(PART.format("Users"), lambda route: route.abort())
    console.go(page, "agents", "Agents")
    newer = '<script type="module" src="./assets/index-newbuild.js"></script>'
    page.route(re.compile("/console/$"), lambda route: route.fulfill(body=newer))
    loads: list[str] = []
    page.on("framenavigated", lambda frame: loads.append(frame.url))
    menu(page, "Users")
    # Here, the new build lacks the file as well: the page is not loaded again and again.
    expect(page.get_by_role("alert").filter(has_text="could not be loaded")).to_be_visible()
    reloads = len([url for url in loads if url.endswith("/users")]) - 1
    page.unroute(PART.format("Users"))
    page.unroute(re.compile("/console/$"))
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("heading", name="Users", level=1)).to_be_visible()
    console.complaints.clear()

    return reloads


def failing(console: Console, page: Page) -> None:
    """An answer 500, and then a slow answer."""
    spec = {"name": "one", "command": ["true"], "runtime": "fake", "resources": {"cpu": 1}}
    call(console, "POST", "/v1/sessions", spec)
    problem = {"title": "Internal error", "detail": "boom", "status": 500}

    def refuse(route: Route) -> None:
        route.fulfill(status=500, json=problem, content_type="application/problem+json")

    page.route("**/v1/keys?*", refuse)
    page.goto(f"{console.url}/console/keys")
    alert = page.get_by_role("alert").filter(has_text="boom")
    expect(alert).to_be_visible()
    page.unroute("**/v1/keys?*")
    alert.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("table", name="API keys")).to_be_visible()
    page.route("**/v1/sessions?*", refuse)
    console.go(page, "agents", "Agents")
    menu(page, "Sessions")
    expect(page.get_by_role("alert").filter(has_text="boom")).to_be_visible()
    page.unroute("**/v1/sessions?*")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("table", name="Sessions")).to_be_visible()

    def delay(route: Route) -> None:
        time.sleep(1.5)
        route.continue_()

    page.route("**/v1/groups?*", delay)
    page.goto(f"{console.url}/console/groups")
    expect(page.get_by_label("Loading").first).to_be_visible()
    expect(page.get_by_role("table", name="Resource groups")).to_be_visible()
    page.unroute("**/v1/groups?*")
    console.complaints.clear()


def ended_under_dialog(console: Console, page: Page) -> None:
    """A session ends while its dialog is open: the dialog stays, and the answer says so."""
    spec = {"name": "brief", "command": ["sleep", "1d"], "runtime": "fake", "resources": {"cpu": 1}}
    call(console, "POST", "/v1/sessions", spec)
    console.go(page, "sessions/brief", "brief")
    page.get_by_role("button", name="Stop", exact=True).click()
    dialog = page.get_by_role("dialog")
    call(console, "POST", "/v1/sessions/brief/stop")
    expect(page.locator(".lead").get_by_text(re.compile("Cancelled|Terminated"))).to_be_visible()
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Stop", exact=True).click()
    # Stopping what has ended is no error.
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="Stop", exact=True)).to_have_count(0)


def hostile_names(console: Console, page: Page) -> None:
    for name in ("n" * 63, "a" * 60):
        spec = {"name": name, "command": [HOSTILE], "runtime": "fake", "resources": {"cpu": 1}}
        call(console, "POST", "/v1/sessions", spec)

    for width in ("wide", "narrow"):
        context = page.context
        size = {"wide": (1280, 800), "narrow": (360, 780)}[width]
        page.set_viewport_size({"width": size[0], "height": size[1]})
        console.go(page, "sessions", "Sessions")
        expect(page.get_by_role("link", name="n" * 63)).to_be_visible()
        console.check(page, f"long names, {width}")
        console.go(page, f"sessions/{'n' * 63}", "n" * 63)
        page.get_by_role("tab", name="Specification").click()
        expect(page.get_by_role("tabpanel", name="Specification")).to_contain_text("\\u202e")
        console.check(page, f"a long name, {width}")
        assert context.pages == [page]

    page.set_viewport_size({"width": 1280, "height": 800})


def lost_right(console: Console) -> None:
    """An administrator becomes a plain user while the page is open."""
    call(console, "POST", "/v1/projects", {"name": "vision"})
    call(console, "POST", "/v1/users", {"name": "ann", "platform_role": "admin"})
    call(console, "PUT", "/v1/projects/vision/members/ann", {"role": "member"})
    call(console, "PUT", "/v1/users/ann/password", {"password": "first-secret"})
    page = console.open()
    page.goto(f"{console.url}/console/")
    page.get_by_text("Password", exact=True).click()
    page.get_by_label("User").fill("ann")
    page.locator("input[type=password]").fill("first-secret")
    page.get_by_role("button", name="Sign in", exact=True).click()
    menu(page, "Users")
    expect(page.get_by_role("button", name="New user")).to_be_visible()
    call(console, "PATCH", "/v1/users/ann", {"platform_role": None})
    links = page.get_by_role("navigation").get_by_role("link")
    expect(links.filter(has_text=re.compile("^Users$"))).to_have_count(0)
    expect(page.get_by_role("button", name="New user")).to_have_count(0)
    menu(page, "Agents")
    expect(page.get_by_role("heading", name="Agents", level=1)).to_be_visible()
    expect(page.get_by_role("button", name="Add")).to_have_count(0)
    page.context.close()
    console.complaints.clear()  # refusals, and the 401 before sign-in


def main(url: str, key: str, pictures: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        console = Console(browser, url, key, pictures)
        page = console.open()
        seen: dict[str, object] = {}
        try:
            console.sign_in(page)
            away(console, page)
            missing(console, page)
            seen["reloads"] = upgraded(console, page)
            failing(console, page)
            ended_under_dialog(console, page)
            hostile_names(console, page)
            lost_right(console)
        except Exception:
            page.screenshot(path=pictures / "failed.png")
            raise

        browser.close()

    print(json.dumps(seen | {"complaints": console.complaints, "axe": console.axe}))


main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
