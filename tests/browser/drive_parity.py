"""Performs actions of the command line in the console: ``python drive_parity.py URL KEY PICTURES``.

Each function performs the rows of ``parity.py`` that name it, and reads the result by REST. Prints
a line for the moment at which the test has to join an agent, waits for a line from it, and prints
what it has seen as JSON at the end.
"""

import json
import re
import sys
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from console_page import CHROMIUM, Console, confirm
from form_page import look
from playwright.sync_api import Locator, Page, expect, sync_playwright


def call(
    console: Console, path: str, *, key: str = "", method: str = "GET", body: object = None
) -> Any:
    """The answer to a request; its status if it is refused."""
    headers = {"Authorization": f"Bearer {key or console.key}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(console.url + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code


def post(console: Console, path: str, body: object) -> Any:
    headers = {"Authorization": f"Bearer {console.key}", "Content-Type": "application/json"}
    request = urllib.request.Request(console.url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())


def change(console: Console, path: str, body: object) -> None:
    headers = {"Authorization": f"Bearer {console.key}", "Content-Type": "application/json"}
    data = json.dumps(body).encode()
    request = urllib.request.Request(console.url + path, data, headers, method="PATCH")
    with urllib.request.urlopen(request):
        pass


def items(console: Console, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = call(console, path)["items"]
    return found


def opened(page: Page, button: str) -> Locator:
    """The dialog that a button of the page opens."""
    page.get_by_role("button", name=button, exact=True).first.click()
    return page.get_by_role("dialog")


def row_of(page: Page, text: str) -> Locator:
    return page.get_by_role("row").filter(has_text=text)


def submit(page: Page, verb: str) -> None:
    """Press a dialog's button and wait until it is closed."""
    confirm(page, verb)


def choose(page: Page, dialog: Locator, label: str, option: str) -> None:
    dialog.get_by_label(label).first.click()
    page.get_by_role("option", name=option, exact=True).click()


def secrets(console: Console, page: Page) -> None:
    console.go(page, "secrets", "Secrets")
    dialog = opened(page, "New secret")
    dialog.get_by_label("Name").fill("not a name!")
    dialog.get_by_label("Value").fill("one")
    console.check(page, "secret form")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("a name consists of")
    console.complaints.clear()  # the refusal is a 4xx
    dialog.get_by_label("Name").fill("HF_TOKEN")
    submit(page, "Save")
    [secret] = items(console, "/v1/secrets")
    assert secret["name"] == "HF_TOKEN", secret

    row_of(page, "HF_TOKEN").get_by_role("button", name="Replace").click()
    page.get_by_role("dialog").get_by_label("Value").fill("two")
    submit(page, "Save")
    assert items(console, "/v1/secrets")[0]["version"] > secret["version"]

    row_of(page, "HF_TOKEN").get_by_role("button", name="Delete").click()
    submit(page, "Delete")
    assert items(console, "/v1/secrets") == []


def notifications(console: Console, page: Page) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as hook:
        Thread(target=hook.serve_forever, daemon=True).start()
        try:
            _notifications(console, page, f"http://127.0.0.1:{hook.server_port}/hook")
        finally:
            hook.shutdown()


class Hook(BaseHTTPRequestHandler):
    """Accepts webhooks."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def _notifications(console: Console, page: Page, url: str) -> None:
    console.go(page, "notifications", "Notifications")
    dialog = opened(page, "New subscription")
    dialog.get_by_label("Name").first.fill("lab")
    choose(page, dialog, "Kind", "Webhook")
    dialog.get_by_label("URL").fill("https://[fd00::1]/")
    console.check(page, "subscription form")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text("not a public address")
    console.complaints.clear()  # the refusal is a 4xx
    dialog.get_by_label("URL").fill(url)
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_role("dialog").locator(".command-line")).to_contain_text("whsec_")
    page.get_by_role("dialog").get_by_role("button", name="I have stored it").click()
    [made] = items(console, "/v1/subscriptions")
    assert made["events"] == ["session.ended", "session.failed"], made

    row_of(page, "lab").get_by_role("button", name="Deliveries").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Send a test").click()
    expect(dialog.get_by_text("Delivered")).to_be_visible(timeout=20_000)
    console.check(page, "deliveries")
    dialog.get_by_role("button", name="Close").click()

    row_of(page, "lab").get_by_role("button", name="Edit").click()
    page.get_by_role("dialog").get_by_label("Session name").fill("train-*")
    submit(page, "Save")
    assert items(console, "/v1/subscriptions")[0]["session_name"] == "train-*"

    row_of(page, "lab").get_by_role("button", name="Rotate the secret").click()
    page.get_by_role("dialog").get_by_role("button", name="Rotate the secret").click()
    expect(page.get_by_role("dialog").locator(".command-line")).to_contain_text("whsec_")
    page.get_by_role("dialog").get_by_role("button", name="I have stored it").click()
    console.check(page, "notifications")

    row_of(page, "lab").get_by_role("button", name="Delete").click()
    submit(page, "Delete")
    assert items(console, "/v1/subscriptions") == []


def keys(console: Console, page: Page) -> None:
    console.go(page, "keys", "API keys")
    dialog = opened(page, "New key")
    dialog.get_by_label("Name").fill("robot")
    dialog.get_by_role("button", name="Create").click()
    first = page.get_by_role("dialog").locator(".command-line").inner_text()
    page.get_by_role("dialog").get_by_role("button", name="I have stored it").click()
    assert isinstance(call(console, "/v1/sessions", key=first), dict)

    row_of(page, "robot").get_by_role("button", name="Edit").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Requests per minute").fill("60")
    console.check(page, "key form")
    submit(page, "Save")
    assert call(console, "/v1/keys/robot")["requests_per_minute"] == 60

    row_of(page, "robot").get_by_role("button", name="Rotate").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Current secret stays valid, in hours").fill("0")
    dialog.get_by_role("button", name="Rotate").click()
    second = page.get_by_role("dialog").locator(".command-line").inner_text()
    page.get_by_role("dialog").get_by_role("button", name="I have stored it").click()
    assert call(console, "/v1/sessions", key=first) == 401
    assert isinstance(call(console, "/v1/sessions", key=second), dict)

    row_of(page, "robot").get_by_role("button", name="Revoke").click()
    submit(page, "Revoke")
    assert call(console, "/v1/sessions", key=second) == 401


def own_keys(console: Console, page: Page) -> None:
    """A member manages the own keys, sees no others, and no pages of the platform."""
    secret = post(console, "/v1/keys", {"name": "mel", "user": "mel", "role": "member"})["secret"]
    member = Console(console.browser, console.url, secret, console.pictures)
    own = member.open()
    member.sign_in(own)
    menu = own.get_by_role("navigation", name="Pages")
    expect(menu.get_by_role("link", name="API keys")).to_be_visible()
    for name in ("Connections", "Users", "Audit"):
        expect(menu.get_by_role("link", name=name)).to_have_count(0)

    member.go(own, "keys", "API keys")
    expect(row_of(own, "mel").first).to_be_visible()
    expect(row_of(own, "admin")).to_have_count(0)
    dialog = opened(own, "New key")
    dialog.get_by_label("Name").fill("laptop")
    dialog.get_by_role("button", name="Create").click()
    own.get_by_role("dialog").get_by_role("button", name="I have stored it").click()
    assert call(console, "/v1/keys/laptop")["user"] == "mel"

    row_of(own, "laptop").get_by_role("button", name="Revoke").click()
    submit(own, "Revoke")
    assert call(console, "/v1/keys/laptop") == 404
    assert member.complaints == [], member.complaints
    own.context.close()


def prices(console: Console, page: Page) -> None:
    console.go(page, "prices", "Prices")
    dialog = opened(page, "Set a price")
    dialog.get_by_label("Price").fill("2.5")
    dialog.get_by_label("GPU model").fill("H100")
    console.check(page, "price form")
    submit(page, "Save")
    [price] = items(console, "/v1/prices")
    assert (price["unit"], price["device"], price["price"]) == ("gpu", "H100", 2_500_000), price
    expect(row_of(page, "H100")).to_contain_text("2.5")


def quotas(console: Console, page: Page) -> None:
    console.go(page, "quotas", "Quotas")
    dialog = opened(page, "New quota")
    dialog.get_by_label("Name").fill("default")
    dialog.get_by_label("Placed sessions").fill("5")
    submit(page, "Save")
    assert call(console, "/v1/quotas/project/default")["sessions"] == 5
    row_of(page, "default").get_by_role("button", name="Remove").click()
    submit(page, "Remove")
    assert items(console, "/v1/quotas") == []


def qos(console: Console, page: Page) -> None:
    console.go(page, "quotas", "Quotas")
    dialog = opened(page, "New QoS")
    dialog.get_by_label("Name").fill("debug")
    dialog.get_by_label("Priority").fill("50")
    dialog.get_by_label("Price factor").fill("0.5")
    dialog.get_by_label("Longest time limit").fill("30")
    dialog.get_by_label("Largest request").fill("cuda.device=1")
    page.keyboard.press("Enter")
    dialog.get_by_label("All projects may use it").uncheck()
    dialog.get_by_label("Permitted projects").fill("default")
    page.keyboard.press("Enter")
    submit(page, "Save")
    found = call(console, "/v1/qos/debug")
    assert (found["priority"], found["price_factor"], found["max_time_s"]) == (50, 0.5, 1800), found
    assert found["max_per_session"] == {"cuda.device": "1"}, found
    assert found["projects"] == ["default"], found
    row = row_of(page, "debug")
    expect(row).to_contain_text("30 min")
    expect(row).to_contain_text("cuda.device=1 each")

    console.go(page, "new-session", "New session")
    page.get_by_label("Quality of service (QoS)").select_option("debug")
    console.go(page, "quotas", "Quotas")

    row_of(page, "debug").get_by_role("button", name="Edit").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Placed sessions of a user").fill("2")
    dialog.get_by_label("Longest time limit").fill("")
    submit(page, "Save")
    found = call(console, "/v1/qos/debug")
    assert (found["max_running_per_user"], found["max_time_s"]) == (2, None), found
    row_of(page, "debug").get_by_role("button", name="Delete").click()
    submit(page, "Delete")
    assert items(console, "/v1/qos") == []


def budgets(console: Console, page: Page) -> None:
    console.go(page, "usage", "Usage and budgets")
    dialog = opened(page, "New budget")
    dialog.get_by_label("Name").fill("default")
    dialog.get_by_label("Hard limit").fill("100")
    submit(page, "Save")
    [budget] = items(console, "/v1/budgets")
    assert (budget["scope"], budget["name"]) == ("project", "default"), budget
    row_of(page, "default").get_by_role("button", name="Delete").click()
    submit(page, "Delete")
    assert items(console, "/v1/budgets") == []


def users(console: Console, page: Page) -> None:
    console.go(page, "users", "Users")
    dialog = opened(page, "New user")
    dialog.get_by_label("Name").fill("ada")
    submit(page, "Create")
    assert call(console, "/v1/users/ada")["status"] == "active"

    row_of(page, "ada").get_by_role("button", name="Edit").click()
    page.get_by_role("dialog").get_by_label("E-mail").fill("ada@example.org")
    submit(page, "Save")
    assert call(console, "/v1/users/ada")["email"] == "ada@example.org"

    row_of(page, "ada").get_by_role("button", name="Set password").click()
    page.get_by_role("dialog").locator("input[type=password]").fill("correct horse battery")
    submit(page, "Set password")


def projects(console: Console, page: Page) -> None:
    console.go(page, "projects", "Projects")
    dialog = opened(page, "New project")
    dialog.get_by_label("Name").fill("vision")
    submit(page, "Create")
    assert call(console, "/v1/projects/vision")["status"] == "active"

    console.go(page, "projects/vision", "vision")
    dialog = opened(page, "Edit")
    dialog.get_by_label("Highest priority").fill("40")
    submit(page, "Save")
    assert call(console, "/v1/projects/vision")["max_priority"] == 40

    page.get_by_label("User").first.fill("ada")
    page.get_by_role("button", name="Add or change").click()
    expect(row_of(page, "ada")).to_be_visible()
    assert [m["user"] for m in items(console, "/v1/projects/vision/members")] == ["ada"]
    row_of(page, "ada").get_by_role("button", name="Remove").click()
    submit(page, "Remove")
    assert items(console, "/v1/projects/vision/members") == []


def limits(console: Console, page: Page) -> None:
    """After ``projects``. The limit of a project and its use; it is set where it belongs."""
    change(console, "/v1/projects/vision", {"requests_per_minute": 60, "concurrent_requests": 4})
    console.go(page, "quotas", "Quotas")
    table = page.get_by_role("table", name="Request limits")
    row = table.get_by_role("row").filter(has_text="vision")
    expect(row).to_contain_text("0 of 60")
    expect(row).to_contain_text("0 of 4")
    expect(row).to_contain_text("no limit")
    look(console, page, "limits")
    [limit] = [one for one in items(console, "/v1/limits") if one["name"] == "vision"]
    assert limit["requests_per_minute"] == {"limit": 60, "used": 0}, limit
    row.get_by_role("link", name="vision").click()
    expect(page.get_by_role("heading", name="vision", level=1)).to_be_visible()
    change(console, "/v1/projects/vision", {"requests_per_minute": None})
    change(console, "/v1/projects/vision", {"concurrent_requests": None})
    console.go(page, "quotas", "Quotas")
    expect(page.get_by_text("No limits", exact=True)).to_be_visible()


def delete(page: Page, name: str) -> Locator:
    """Ask to delete the user or project on the page; the dialog."""
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name=f"Delete {name}")).to_be_visible()
    expect(dialog.get_by_text("quotas and budgets are deleted with it")).to_be_visible()
    expect(dialog.get_by_text("It cannot be restored.")).to_be_visible()
    dialog.get_by_role("button", name="Delete").click()
    return dialog


def refused(console: Console, dialog: Locator, said: str) -> None:
    expect(dialog.get_by_role("alert")).to_contain_text(said)
    console.complaints.clear()  # the refusal is a 409
    dialog.get_by_role("button", name="Cancel").click()


def deletions(console: Console, page: Page) -> None:
    """After ``archives``. What a key names is not deleted; then it is."""
    post(console, "/v1/users", {"name": "anm"})
    post(console, "/v1/keys", {"name": "of-anm", "user": "anm", "project": "vision"})
    console.go(page, "users?search=anm", "Users")
    row_of(page, "anm").get_by_role("button", name="Delete").click()
    refused(console, delete(page, "anm"), "key")
    console.go(page, "projects/vision", "vision")
    page.get_by_role("button", name="Delete").click()
    console.check(page, "delete a project")
    refused(console, delete(page, "vision"), "key")

    call(console, "/v1/keys/of-anm", method="DELETE")
    page.get_by_role("button", name="Delete").click()
    delete(page, "vision")
    expect(page.get_by_role("heading", name="Projects", level=1)).to_be_visible()
    assert call(console, "/v1/projects/vision") == 404
    console.go(page, "users?search=anm", "Users")
    row_of(page, "anm").get_by_role("button", name="Delete").click()
    delete(page, "anm")
    expect(row_of(page, "anm")).to_have_count(0)
    expect(page).to_have_url(re.compile("search=anm"))
    assert call(console, "/v1/users/anm") == 404


def bulk(console: Console, page: Page) -> None:
    """Several rows of a list at once, of which one is refused, and what a link shows."""
    for name in ("one", "two", "three"):
        post(console, "/v1/users", {"name": f"bulk-{name}"})
        post(console, "/v1/projects", {"name": f"bulk-{name}"})
        post(console, "/v1/groups", {"name": f"bulk-{name}"})

    post(console, "/v1/keys", {"name": "of-bulk", "user": "bulk-one", "project": "bulk-one"})
    names = [f"bulk-{name}" for name in ("one", "two", "three")]
    on_all(console, page, ("users?search=bulk", "Users"), "Disable 3")
    assert {call(console, f"/v1/users/{name}")["status"] for name in names} == {"disabled"}
    on_all(console, page, ("projects?search=bulk", "Projects"), "Archive 3")
    assert all(call(console, f"/v1/projects/{name}")["archived_at"] for name in names)
    page.get_by_label("Show archived").check()
    expect(page).to_have_url(re.compile("archived=true"))
    page.reload()
    expect(row_of(page, "bulk-two")).to_contain_text("Archived")
    on_all(console, page, ("projects?search=bulk&archived=true", "Projects"), "Restore 3")
    on_all(console, page, ("groups?search=bulk", "Resource groups"), "Retire 3")
    assert all(call(console, f"/v1/groups/{name}")["retired_at"] for name in names)

    for path, heading in (("users", "Users"), ("projects", "Projects")):
        console.go(page, f"{path}?search=bulk", heading)
        page.get_by_label("Select all rows that are shown").check()
        page.get_by_role("button", name="Delete 3").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Delete 3").click()
        expect(dialog.get_by_text("2 of 3 done. 1 failed:")).to_be_visible()
        expect(dialog.get_by_role("listitem")).to_contain_text("bulk-one")
        console.check(page, f"bulk deletion of {path}")
        dialog.get_by_role("button", name="Close").last.click()
        found = [call(console, f"/v1/{path}/{name}") for name in names]
        assert [answer == 404 for answer in found] == [False, True, True], found

    console.complaints.clear()  # the refusals are 409
    for name in ("bulk-a", "bulk-b"):
        spec = {"name": name, "engine": "vllm", "model": "tiny", "replicas": 0}
        post(console, "/v1/endpoints", spec | {"resources": {"cpu": 1}})

    on_all(console, page, ("endpoints?search=bulk", "Endpoints"), "Delete 2")
    assert items(console, "/v1/endpoints") == []


def on_all(console: Console, page: Page, place: tuple[str, str], verb: str) -> None:
    """Perform an action on all rows of a list."""
    console.go(page, *place)
    page.get_by_label("Select all rows that are shown").check()
    page.get_by_role("button", name=verb).click()
    console.check(page, verb)
    confirm(page, verb)


def filters(console: Console, page: Page) -> None:
    """After ``bulk``. Filters are in the address: a reload and a link show the same list."""
    console.go(page, "audit", "Audit")
    page.get_by_label("Action", exact=True).fill("archive_project")
    page.get_by_label("By", exact=True).fill("user:admin")
    table = page.get_by_role("table", name="Audit")
    expect(page).to_have_url(re.compile("action=archive_project.*actor=user|actor=user.*action="))
    expect(table.get_by_role("row").filter(has_text="archive_project")).not_to_have_count(0)
    expect(table.get_by_role("row").filter(has_text="create_")).to_have_count(0)
    rows = table.get_by_role("row").count()
    page.reload()
    expect(page.get_by_label("Action", exact=True)).to_have_value("archive_project")
    expect(table.get_by_role("row")).to_have_count(rows)
    console.check(page, "filtered audit")
    page.get_by_label("Action", exact=True).fill("")
    expect(page).not_to_have_url(re.compile("action="))
    console.go(page, "usage", "Usage and budgets")
    choose(page, page.locator("main"), "By", "User")
    page.reload()
    expect(page.get_by_label("By").first).to_have_value("User")


def archives(console: Console, page: Page) -> None:
    """After ``users`` and ``projects``."""
    console.go(page, "users", "Users")
    row_of(page, "ada").get_by_role("button", name="Archive").click()
    submit(page, "Archive")
    assert call(console, "/v1/users/ada")["archived_at"] is not None
    page.get_by_label("Show archived").check()
    row_of(page, "ada").get_by_role("button", name="Restore").click()
    expect(row_of(page, "ada").get_by_role("button", name="Archive")).to_be_visible()
    assert call(console, "/v1/users/ada")["archived_at"] is None

    console.go(page, "projects/vision", "vision")
    opened(page, "Archive")
    submit(page, "Archive")
    page.get_by_role("button", name="Restore").wait_for()
    assert call(console, "/v1/projects/vision")["archived_at"] is not None
    page.get_by_role("button", name="Restore").click()
    page.get_by_role("button", name="Archive").wait_for()
    assert call(console, "/v1/projects/vision")["archived_at"] is None


def groups(console: Console, page: Page) -> None:
    console.go(page, "groups", "Resource groups")
    dialog = opened(page, "New resource group")
    dialog.get_by_label("Name").fill("silver")
    submit(page, "Create")
    console.go(page, "groups/silver", "silver")
    dialog = opened(page, "Edit")
    dialog.get_by_label("Purpose").fill("for tests")
    submit(page, "Save")
    assert call(console, "/v1/groups/silver")["options"]["description"] == "for tests"
    assert call(console, "/v1/groups/silver")["options"]["limits"] is None

    limits = opened(page, "Edit").get_by_role("group", name="Limits of sessions and users")
    limits.get_by_label("Longest batch session").fill("90")
    limits.get_by_label("Waiting sessions of a user").fill("7")
    limits.get_by_label("Largest request").fill("cuda.device=2")
    page.keyboard.press("Enter")
    submit(page, "Save")
    found = call(console, "/v1/groups/silver")["options"]["limits"]
    assert (found["max_batch_time_s"], found["max_pending_per_user"]) == (5400, 7), found
    assert found["max_per_session"] == {"cuda.device": "2"}, found

    limits = opened(page, "Edit").get_by_role("group", name="Limits of sessions and users")
    limits.get_by_label("Default of batch sessions").fill("91")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("is above `max_batch_time_s`")
    for label in ("Default of batch sessions", "Longest batch session"):
        limits.get_by_label(label).fill("")
    limits.get_by_label("Waiting sessions of a user").fill("")
    limits.get_by_label("Largest request").press("Backspace")
    submit(page, "Save")
    assert call(console, "/v1/groups/silver")["options"]["limits"] is None


def former_names(console: Console, page: Page) -> None:
    """A former name of a group is released once no template uses it."""
    post(console, "/v1/groups", {"name": "bronze"})
    spec = {"command": ["true"], "resource_group": "bronze"}
    call(console, "/v1/templates/old", method="PUT", body={"spec": spec})
    call(console, "/v1/groups/bronze", method="PATCH", body={"name": "copper"})
    console.go(page, "groups/copper", "copper")
    names = page.get_by_role("group", name="bronze")
    names.get_by_role("button", name="Release").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("no longer reach copper")).to_be_visible()
    console.check(page, "release a former name")
    dialog.get_by_role("button", name="Release").click()
    refused(console, dialog, "template")
    call(console, "/v1/templates/old", method="DELETE")
    names.get_by_role("button", name="Release").click()
    submit(page, "Release")
    expect(names).to_have_count(0)
    assert call(console, "/v1/groups/copper")["aliases"] == []
    assert call(console, "/v1/groups/bronze") == 404


def join_tokens(console: Console, page: Page) -> str:
    """The command with which a node joins."""
    console.go(page, "connections", "Connections")
    dialog = opened(page, "New join token")
    dialog.get_by_label("Uses").fill("2")
    console.check(page, "join token form")
    dialog.get_by_role("button", name="Create").click()
    line = page.get_by_role("dialog").locator(".command-line").inner_text()
    page.get_by_role("dialog").get_by_role("button", name="I have stored it").click()
    [token] = items(console, "/v1/join-tokens")
    assert (token["kind"], token["uses"], token["used"]) == ("agent", 2, 0), token
    return line


def connections(console: Console, page: Page, agent: str) -> None:
    """After an agent has joined with the token of ``join_tokens``."""
    console.go(page, "connections", "Connections")
    expect(row_of(page, "Leader")).to_be_visible()
    expect(page.get_by_text("1 of 2")).to_be_visible()
    console.check(page, "connections")
    page.get_by_role("button", name="Delete").click()
    submit(page, "Delete")
    assert items(console, "/v1/join-tokens") == []

    opened(page, "Rotate")
    submit(page, "Rotate")
    assert call(console, "/v1/ca")["since"] is not None

    row_of(page, agent).get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_label(f"Type {agent} to confirm").fill(agent)
    submit(page, "Revoke")
    assert items(console, "/v1/peers") == []


def agents(console: Console, page: Page, agent: str) -> None:
    """After ``groups``, with an agent that is connected."""
    console.go(page, f"agents/{agent}", agent)
    for button, cordon in (("Cordon", "cordon"), ("Drain", "drain")):
        opened(page, button)
        submit(page, button)
        page.get_by_role("button", name="Uncordon").wait_for()
        assert call(console, f"/v1/agents/{agent}")["cordon"] == cordon
        page.get_by_role("button", name="Uncordon").click()
        expect(page.get_by_role("button", name="Uncordon")).to_have_count(0)
        assert not call(console, f"/v1/agents/{agent}")["cordon"]

    dialog = opened(page, "Move")
    choose(page, dialog, "Resource group", "silver")
    console.check(page, "move an agent")
    submit(page, "Move")
    assert call(console, f"/v1/agents/{agent}")["resource_group"] == "silver"


def sessions(console: Console, page: Page) -> None:
    """With a running session ``dev`` whose workspace is kept."""
    console.go(page, "sessions/dev", "dev")
    opened(page, "Stop")
    submit(page, "Stop")
    expect(page.get_by_role("button", name="Stop", exact=True)).to_have_count(0)
    assert call(console, "/v1/sessions/dev")["status"] in ("TERMINATING", "TERMINATED")


def tasks(console: Console, page: Page) -> None:
    """A list of three tasks, one of which fails; it is retried."""
    script = "echo did $0; test $0 != bad"
    post(
        console,
        "/v1/sessions",
        {
            "name": "scan",
            "command": ["sh", "-c", script, "{}"],
            "tasks": {"lines": "good\nbad\nfine", "workers": 1},
            "resources": {"cpu": 0.1, "mem": "64MiB"},
        },
    )
    console.go(page, "sessions/scan", "scan")
    page.get_by_role("tab", name="Tasks").click()
    panel = page.get_by_role("tabpanel")
    expect(panel).to_contain_text("3 tasks · 2 succeeded · 1 failed", timeout=60_000)
    look(console, page, "tasks")
    row = panel.get_by_role("row").filter(has_text="bad")
    expect(row).to_contain_text("FAILED")
    row.get_by_role("button", name="Output").click()
    expect(page.get_by_role("dialog")).to_contain_text("did bad")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    panel.get_by_label("Status").select_option("SUCCEEDED")
    expect(panel.get_by_role("row")).to_have_count(3)

    dialog = opened(page, "Retry")
    dialog.get_by_label("Name").fill("scan-2")
    dialog.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("heading", name="scan-2", level=1)).to_be_visible()
    expect(panel).to_contain_text("1 task", timeout=60_000)
    assert call(console, "/v1/sessions/scan-2/tasks/summary")["total"] == 1


def scheduler_log(console: Console, page: Page) -> None:
    """With the session ``dev``, which was placed."""
    session = call(console, "/v1/sessions/dev")
    console.go(page, "groups/default", "default")
    log = page.get_by_role("region", name="Scheduler log")
    log.get_by_label("Session id").fill(session["id"])
    row = log.get_by_role("row").filter(has_text="Placed")
    expect(row).to_have_count(1)
    look(console, page, "scheduler-log")
    row.get_by_role("button", name="Details").click()
    dialog = page.get_by_role("dialog")
    agents = dialog.get_by_role("row").filter(has_text=session["id"])
    expect(agents).to_contain_text(session["kernels"][0]["agent_id"])
    look(console, page, "scheduling-pass")
    dialog.get_by_role("button", name="Close").click()
    log.get_by_label("Session id").fill("no-such-session")
    expect(log.get_by_text("No passes in this time")).to_be_visible()
    log.get_by_label("Session id").fill("")
    expect(log.get_by_role("columnheader", name="Preempted")).to_be_visible()
    span = f"from={session['created_at'][:-1]}Z&to=2100-01-01T00:00:00Z"
    [placed] = [
        one
        for one in items(console, f"/v1/scheduler/passes?{span}&session={session['id']}")
        if one["session"] == "placed"
    ]
    assert placed["places"][0]["session_id"] == session["id"], placed

    console.go(page, "sessions/dev", "dev")
    page.get_by_role("tab", name="Scheduling").click()
    expect(page.get_by_role("row").filter(has_text="Placed")).to_be_visible()
    look(console, page, "session-scheduling")


def workspaces(console: Console, page: Page) -> None:
    """After ``sessions``."""
    console.go(page, "workspaces", "Workspaces")
    console.check(page, "workspaces")
    row = row_of(page, "dev")
    expect(row).to_contain_text("Not in use")
    row.get_by_role("button", name="Delete").click()
    submit(page, "Delete")
    assert items(console, "/v1/workspaces") == []


def forget(console: Console, page: Page, agent: str) -> None:
    """After ``connections``: the agent is gone, and left a kernel behind."""
    console.go(page, f"agents/{agent}", agent)
    page.get_by_role("button", name="Forget").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("This is refused while its kernels may still run")).to_be_visible()
    expect(dialog.get_by_role("button", name="Forget")).to_be_disabled()
    dialog.get_by_label(f"Type {agent} to confirm").fill(agent)
    dialog.get_by_role("button", name="Forget").click()
    expect(dialog.get_by_role("alert")).to_contain_text("not known to have ended")
    console.check(page, "forget an agent")
    console.complaints.clear()  # the refusal is a 409
    dialog.get_by_label("The node is gone for good").check()
    expect(dialog.get_by_text("is considered ended")).to_be_visible()
    submit(page, "Forget")
    expect(page.get_by_role("heading", name="Agents", level=1)).to_be_visible()
    assert call(console, f"/v1/agents/{agent}") == 404


def ask(moment: str) -> str:
    """Ask the test to do something, and return its answer."""
    print(moment, flush=True)
    return sys.stdin.readline().strip()


def main(url: str, key: str, pictures: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        console = Console(browser, url, key, pictures)
        page = console.open()
        try:
            console.sign_in(page)
            for act in (
                secrets,
                notifications,
                keys,
                own_keys,
                prices,
                quotas,
                qos,
                budgets,
                users,
                projects,
                limits,
                archives,
                deletions,
                bulk,
                filters,
                groups,
                former_names,
            ):
                act(console, page)

            console.complaints = [c for c in console.complaints if "401" not in c]
            agent = ask(f"join {join_tokens(console, page)}")
            scheduler_log(console, page)
            tasks(console, page)
            sessions(console, page)
            workspaces(console, page)
            agents(console, page, agent)
            connections(console, page, agent)
            ask("gone")
            forget(console, page, agent)
        except Exception:
            page.screenshot(path=pictures / "failed.png")
            raise

        browser.close()

    print(json.dumps({"complaints": console.complaints, "axe": console.axe}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
