"""Operates the lists, the first screen and the map of devices: ``python drive_lists.py URL KEY
PICTURES``.

Begins with an installation in which nothing exists. Prints a line for each moment at which the test
has to act, waits for a line from it, and prints what it has seen as JSON at the end.
"""

import json
import re
import sys
import urllib.request
from pathlib import Path
from typing import Any

from console_page import CHROMIUM, WIDTHS, Console, confirm
from playwright.sync_api import Page, Route, expect, sync_playwright

# A slow link: 100 kB/s and 400 ms.
SLOW = {
    "offline": False,
    "latency": 400,
    "downloadThroughput": 100_000,
    "uploadThroughput": 100_000,
}


def call(console: Console, method: str, path: str, body: object = None) -> Any:
    given = {"Authorization": f"Bearer {console.key}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(console.url + path, data, given, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())


def ask(moment: str) -> None:
    """Ask the test to do something, and wait until it has done it."""
    print(moment, flush=True)
    sys.stdin.readline()


def first_run(console: Console, page: Page) -> None:
    """What to do first, with and then without the advice to add a node."""
    start = page.get_by_role("region", name="Get started")
    expect(start.get_by_text("No node has joined yet")).to_be_visible()
    expect(start.get_by_text("moorage join-tokens create")).to_be_visible()
    console.check(page, "first run")
    page.screenshot(path=console.pictures / "first-run.png")
    ask("nodes")
    expect(start.get_by_text("Nothing has been started yet")).to_be_visible()
    start.get_by_role("link", name="New session").click()
    expect(page.get_by_role("heading", name="New session", level=1)).to_be_visible()


def fill(console: Console) -> None:
    for number in range(60):
        spec = {"name": f"train-{number}", "command": ["sleep", "1d"], "runtime": "fake"}
        call(console, "POST", "/v1/sessions", spec | {"resources": {"cpu": 1, "cuda.device": 1}})

    spec = {"name": "too-large", "command": ["sleep", "1d"], "runtime": "fake"}
    call(console, "POST", "/v1/sessions", spec | {"resources": {"cuda.device": 99}})


def search_and_sort(console: Console, page: Page) -> float:
    """Search and order are in the address, and the manager searches what is not loaded. The height
    of a row with a long note."""
    console.go(page, "sessions", "Sessions")
    table = page.get_by_role("table", name="Sessions")
    page.get_by_label("Search by name").fill("TRAIN-5")
    expect(table.get_by_role("row")).to_have_count(12)  # train-5, train-50 to 59, the header
    expect(page).to_have_url(re.compile(r"search=TRAIN-5"))
    header = table.get_by_role("columnheader", name="Session")
    header.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(header).to_have_attribute("aria-sort", "ascending")
    expect(table.get_by_role("row").nth(1)).to_contain_text("train-5")
    page.keyboard.press("Enter")
    expect(header).to_have_attribute("aria-sort", "descending")
    expect(table.get_by_role("row").nth(1)).to_contain_text("train-59")
    page.reload()
    expect(page.get_by_label("Search by name")).to_have_value("TRAIN-5")
    expect(table.get_by_role("row").nth(1)).to_contain_text("train-59")
    console.check(page, "searched sessions")
    page.get_by_label("Search by name").fill("100%")
    expect(page.get_by_text("Nothing matches “100%”")).to_be_visible()
    page.get_by_label("Search by name").fill("large")
    expect(table.get_by_role("row")).to_have_count(2)
    note = table.get_by_role("row").nth(1)
    expect(note).to_contain_text("could ever hold the session")
    page.screenshot(path=console.pictures / "searched.png")

    return note.bounding_box()["height"]


def bulk(console: Console, page: Page) -> None:
    """Several sessions are stopped, of which one fails; then agents are drained and resumed."""
    console.go(page, "sessions?search=train-5&sort=name", "Sessions")
    for name in ("train-5", "train-50", "train-51"):
        page.get_by_label(f"Select {name}", exact=True).check()

    failing = call(console, "GET", "/v1/sessions/train-50")["id"]
    problem = {"title": "Conflict", "detail": "it is being moved", "status": 409}

    def refuse(route: Route) -> None:
        route.fulfill(status=409, json=problem, content_type="application/problem+json")

    page.route(f"**/v1/sessions/{failing}/stop", refuse)
    page.get_by_role("button", name="Stop 3").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("Stop: 3 selected")).to_be_visible()
    expect(dialog.get_by_role("listitem")).to_have_count(3)
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    console.check(page, "bulk stop")
    dialog.get_by_role("button", name="Stop 3").click()
    expect(dialog.get_by_text("2 of 3 done. 1 failed:")).to_be_visible()
    expect(dialog.get_by_role("listitem")).to_contain_text("train-50 it is being moved")
    page.screenshot(path=console.pictures / "bulk.png")
    page.unroute(f"**/v1/sessions/{failing}/stop")
    dialog.get_by_role("button", name="Close").last.click()
    expect(dialog).to_have_count(0)
    table = page.get_by_role("table", name="Sessions")
    expect(table.get_by_role("row").filter(has_text="Running")).to_have_count(9)
    console.complaints.clear()  # the refusal is a 409
    page.get_by_label("Select train-51", exact=True).check()
    page.get_by_role("button", name="Remove 1").click()
    confirm(page, "Remove 1")
    expect(page.get_by_text("Remove: all 1 done")).to_be_visible()
    expect(page.get_by_label("Select train-51", exact=True)).to_have_count(0)
    console.go(page, "agents?search=SIM-1", "Agents")
    page.get_by_label("Select all rows that are shown").check()
    page.get_by_role("button", name=re.compile(r"Drain \d+")).click()
    confirm(page, "Drain 10")
    agents = page.get_by_role("table", name="Agents")
    expect(agents.get_by_text("Draining")).to_have_count(10)
    page.get_by_label("Select all rows that are shown").check()
    page.get_by_role("button", name="Resume 10").click()
    confirm(page, "Resume 10")
    expect(agents.get_by_text("Draining")).to_have_count(0)


def other_lists(console: Console, page: Page) -> None:
    """Lists that are loaded as a whole are searched and sorted by the page."""
    for name in ("beta", "alpha", "gamma"):
        call(console, "POST", "/v1/projects", {"name": name})

    console.go(page, "projects?sort=-name", "Projects")
    table = page.get_by_role("table", name="Projects")
    expect(table.get_by_role("row").nth(1)).to_contain_text("gamma")
    page.get_by_label("Search by name").fill("ALP")
    expect(table.get_by_role("row")).to_have_count(2)
    for path, heading in (("users", "Users"), ("keys", "API keys"), ("groups", "Resource groups")):
        console.go(page, f"{path}?search=a", heading)
        expect(page.get_by_label("Search by name")).to_have_value("a")
        console.check(page, f"searched {path}")

    console.go(page, "audit?search=gam", "Audit")
    expect(page.get_by_role("table", name="Audit").get_by_role("row")).to_have_count(2)


def overview(console: Console, page: Page) -> None:
    console.go(page, "", "Overview")
    attention = page.get_by_role("region", name="Needs attention")
    expect(attention.get_by_text("1 session can never start")).to_be_visible()
    expect(page.get_by_text(re.compile(r"\d+ of 160 cuda devices free"))).to_be_visible()
    expect(page.get_by_text("Largest free block: 8 devices on one node")).to_be_visible()
    console.check(page, "overview that needs attention")
    page.get_by_role("link", name=re.compile("^Sessions running")).click()
    expect(page).to_have_url(re.compile("status=.*RUNNING"))
    page.go_back()
    attention.get_by_role("link").click()
    expect(page.get_by_role("link", name="too-large")).to_be_visible()


def heat_map(console: Console, page: Page) -> None:
    """By keyboard, in every colouring, in both themes and widths."""
    console.go(page, "groups/default", "default")
    grid = page.get_by_role("grid")
    expect(grid.get_by_role("row")).to_have_count(20)
    expect(grid.get_by_role("gridcell")).to_have_count(160)
    expect(page.get_by_text(re.compile("Largest free block: 8 devices on"))).to_be_visible()
    grid.locator("[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".heat-readout")).to_contain_text("GPU-fake-sim-00-1")
    for _ in range(7):
        page.keyboard.press("ArrowRight")

    expect(page.locator(".heat-readout")).to_contain_text("GPU-fake-sim-01-0")
    page.keyboard.press("End")
    expect(page.locator(".heat-readout")).to_contain_text("sim-19")
    grid.get_by_role("gridcell").nth(3).hover()
    expect(page.locator(".heat-readout")).to_contain_text("GPU-fake-sim-00-3")
    for name in ("User", "Allocation", "Load", "Memory"):
        page.get_by_label("Colour by").first.click()
        page.get_by_role("option", name=name, exact=True).click()
        expect(page.locator(".legend")).to_contain_text("admin" if name == "User" else "to 20 %")
        console.check(page, f"map by {name}")

    page.get_by_label("Find an agent").fill("SIM-07")
    expect(grid.get_by_role("row")).to_have_count(1)
    page.get_by_label("Layout").first.click()
    page.get_by_role("option", name="Rows").click()
    expect(grid.get_by_role("gridcell")).to_have_count(8)
    console.check(page, "rows by memory")
    page.get_by_label("Find an agent").fill("")
    for scheme in ("light", "dark"):
        for width, (wide, high) in WIDTHS.items():
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": wide, "height": high})
            console.go(page, "groups/default", "default")
            expect(grid.get_by_role("gridcell")).to_have_count(160)
            console.check(page, f"map {scheme} {width}")
            page.screenshot(path=console.pictures / f"map-{scheme}-{width}.png")

    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1280, "height": 800})


# When a selector first matches, by the page's clock, which the requests are measured by, too.
FIRST_SEEN = """
window.seen = {};
const watched = { heading: 'h1', data: '.tile' };
new MutationObserver(() => {
  for (const [name, selector] of Object.entries(watched)) {
    if (!(name in window.seen) && document.querySelector(selector)) {
      window.seen[name] = performance.now();
    }
  }
}).observe(document, { childList: true, subtree: true });
"""
REQUESTS = """
[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
  .map((request) => [request.startTime, request.responseEnd])
"""


def rounds(requests: list[tuple[float, float]], until: float) -> int:
    """The longest chain of requests that ended by ``until``, each of which started after the one
    before had ended."""
    chains: list[tuple[float, int]] = []
    for started, ended in sorted(requests):
        if 0 < ended <= until:
            before = (length for other, length in chains if other <= started)
            chains.append((ended, 1 + max(before, default=0)))

    return max(length for _, length in chains)


def first_content(console: Console, page: Page) -> dict[str, float]:
    """Seconds until the first content of a page that is not cached, on a slow link, the bytes until
    its heading is shown, and the requests in series until its heading and its data are."""
    state = page.context.storage_state()
    context = console.browser.new_context(storage_state=state)
    context.add_init_script(FIRST_SEEN)
    fresh = context.new_page()
    link = context.new_cdp_session(fresh)
    received = [0.0]

    def add(event: dict[str, Any]) -> None:
        received[0] += event["encodedDataLength"]

    link.send("Network.enable")
    link.send("Network.emulateNetworkConditions", SLOW)
    link.on("Network.loadingFinished", add)
    fresh.goto(f"{console.url}/", wait_until="commit")
    fresh.get_by_role("heading", name="Overview", level=1).wait_for()
    entry = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    found = {"seconds": fresh.evaluate(entry) / 1000, "bytes": received[0]}
    fresh.locator(".tile").first.wait_for()
    requests = fresh.evaluate(REQUESTS)
    for name, at in fresh.evaluate("window.seen").items():
        found[f"rounds to {name}"] = rounds(requests, at)

    assert fresh.url == f"{console.url}/console/", "the root of the manager is the console"
    context.close()

    return found


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
            first_run(console, page)
            fill(console)
            seen["row height"] = search_and_sort(console, page)
            bulk(console, page)
            other_lists(console, page)
            overview(console, page)
            heat_map(console, page)
            seen["first content"] = first_content(console, page)
        except Exception:
            page.screenshot(path=pictures / "failed.png")
            raise

        browser.close()

    print(json.dumps(seen | {"complaints": console.complaints, "axe": console.axe}))


main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
