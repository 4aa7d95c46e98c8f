"""Scaling and rollouts on an endpoint's page, for ``drive_forms.py``, and what changes while a
dialog is open."""

from typing import Any

from console_page import Console, confirm
from form_page import call, exists, field, look, press
from playwright.sync_api import Page, expect

RESOURCES = {"cpu": 0.1, "cuda.device": 1}


def rollouts(console: Console, page: Page) -> None:
    serve(console, page, "roll")
    scale(console, page)
    canary(console, page)
    conflict(console, page)
    promote(console, page)
    ended_meanwhile(console, page)
    deleted(console, page)
    lost_right(console)


def serve(console: Console, page: Page, name: str) -> None:
    body = {"name": name, "engine": "vllm", "model": "tiny", "resources": RESOURCES}
    call(console, "POST", "/v1/endpoints", body)
    wait(console, page, name, lambda found: found["rollout"]["state"] == "complete")


def wait(console: Console, page: Page, name: str, reached: Any) -> dict[str, Any]:
    for _ in range(300):
        found: dict[str, Any] = call(console, "GET", f"/v1/endpoints/{name}")
        if reached(found):
            return found
        page.wait_for_timeout(200)

    raise AssertionError(f"endpoint {name} is {found['rollout']}, {found['replicas']} replicas")


def scale(console: Console, page: Page) -> None:
    """A number that is not allowed is refused at its field."""
    console.go(page, "endpoints/roll", "roll")
    press(page, "Scale")
    dialog = page.get_by_role("dialog")
    for wrong in ("", "1001", "-1"):
        dialog.get_by_label("Replicas").fill(wrong)
        expect(dialog).to_contain_text("A whole number from 0 to 1,000.")
        expect(dialog.get_by_role("button", name="Scale", exact=True)).to_be_disabled()

    dialog.get_by_label("Replicas").fill("2")
    console.check(page, "scale")
    confirm(page, "Scale")
    assert call(console, "GET", "/v1/endpoints/roll")["replicas"] == 2
    wait(console, page, "roll", lambda found: found["ready"] == 2)
    expect(page.get_by_text("2 of 2 ready")).to_be_visible()


def canary(console: Console, page: Page) -> None:
    """The share is set for the next revision, watched on the page, and changed while it is
    tried."""
    console.go(page, "endpoints/roll", "roll")
    press(page, "Canary share")
    dialog = page.get_by_role("dialog")
    for wrong in ("0", "100", ""):
        field(page, "Canary share in percent").fill(wrong)
        expect(dialog).to_contain_text("A whole number from 1 to 99.")
        expect(dialog.get_by_role("button", name="Save", exact=True)).to_be_disabled()

    field(page, "Canary share in percent").fill("10")
    look(console, page, "canary-share")
    confirm(page, "Save")
    found = call(console, "GET", "/v1/endpoints/roll")
    assert found["spec"]["rollout"]["canary"] == 10, found
    assert found["rollout"]["canary"] == 0, "no revision is tried yet"

    try_revision(console, page, "2")
    banner = page.get_by_role("status").filter(has_text="is a canary with 10 % of the requests")
    expect(banner).to_contain_text("1 of 1 ready, 2 old.")
    look(console, page, "canary")
    press(page, "Canary share")
    expect(page.get_by_role("dialog")).to_contain_text("Share of the requests that revision")
    field(page, "Canary share in percent").fill("50")
    confirm(page, "Save")
    expect(page.get_by_role("status").filter(has_text="50 % of the requests")).to_be_visible()
    assert call(console, "GET", "/v1/endpoints/roll")["rollout"]["canary"] == 50


def try_revision(console: Console, page: Page, number: str) -> int:
    """Roll out another revision as a canary. Its number."""
    call(console, "PATCH", "/v1/endpoints/roll", {"env": {"ROUND": number}})
    found = wait(console, page, "roll", lambda one: one["rollout"]["state"] == "canary")
    revision: int = found["rollout"]["revision"]
    return revision


def conflict(console: Console, page: Page) -> None:
    """Another user changes the endpoint while the dialog is open: nothing is overwritten."""
    press(page, "Canary share")
    field(page, "Canary share in percent").fill("60")
    call(console, "PATCH", "/v1/endpoints/roll", {"rollout": {"canary": 30}})
    page.get_by_role("dialog").get_by_role("button", name="Save", exact=True).click()
    said = page.get_by_role("dialog").get_by_role("alert")
    expect(said.get_by_role("row").filter(has_text="canary")).to_contain_text("30")
    assert call(console, "GET", "/v1/endpoints/roll")["rollout"]["canary"] == 30
    said.get_by_role("button", name="Overwrite with mine").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert call(console, "GET", "/v1/endpoints/roll")["rollout"]["canary"] == 60
    console.complaints.clear()  # the refusal is 412


def promote(console: Console, page: Page) -> None:
    revision = call(console, "GET", "/v1/endpoints/roll")["rollout"]["revision"]
    press(page, "Promote")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"All requests for roll go to revision {revision}.")
    console.check(page, "promote")
    confirm(page, "Promote")
    found = wait(console, page, "roll", lambda one: one["rollout"]["state"] == "complete")
    assert (found["revision"], found["rollout"]["canary"]) == (revision, 0), found
    assert {one["revision"] for one in found["sessions"] if one["state"] == "ready"} == {revision}
    expect(page.get_by_role("button", name="Promote")).to_have_count(0)


def ended_meanwhile(console: Console, page: Page) -> None:
    """The canary is rolled back while the question is open: the dialog stays, and says so."""
    revision = try_revision(console, page, "3")
    press(page, "Promote")
    call(console, "POST", "/v1/endpoints/roll/rollout/undo", {})
    wait(console, page, "roll", lambda found: found["rollout"]["state"] == "complete")
    expect(page.locator("main").get_by_role("status")).to_have_count(0)
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Promote").click()
    expect(dialog.get_by_role("alert")).to_contain_text("has no canary")
    dialog.get_by_role("button", name="Cancel").click()
    assert call(console, "GET", "/v1/endpoints/roll")["revision"] < revision
    console.complaints.clear()  # the refusal is 409


def deleted(console: Console, page: Page) -> None:
    press(page, "Scale")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Replicas").fill("3")
    call(console, "DELETE", "/v1/endpoints/roll")
    dialog.get_by_role("button", name="Scale", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("roll")
    expect(dialog.get_by_label("Replicas")).to_have_value("3")
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("alert")).to_contain_text("no endpoint")
    assert not exists(console, "/v1/endpoints/roll")
    console.complaints.clear()  # the refusals are 404


def lost_right(console: Console) -> None:
    """A member becomes a viewer while the dialog is open: it says why, and the buttons go."""
    call(console, "POST", "/v1/users", {"name": "lea"})
    call(console, "PUT", "/v1/projects/default/members/lea", {"role": "member"})
    call(console, "PUT", "/v1/users/lea/password", {"password": "first-secret"})
    page = console.open()
    page.goto(f"{console.url}/console/")
    page.get_by_text("Password", exact=True).click()
    page.get_by_label("User").fill("lea")
    page.locator("input[type=password]").fill("first-secret")
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.locator("button.who")).to_contain_text("lea")
    body = {"name": "of-lea", "engine": "vllm", "model": "tiny", "resources": RESOURCES}
    create = """body => fetch('/v1/session').then(answer => answer.json()).then(who =>
        fetch('/v1/endpoints', {method: 'POST', body: JSON.stringify(body), headers: {
            'Content-Type': 'application/json', 'X-CSRF-Token': who.csrf_token}}))
        .then(answer => answer.status)"""
    assert page.evaluate(create, body) == 201
    console.go(page, "endpoints/of-lea", "of-lea")
    press(page, "Scale")
    page.get_by_role("dialog").get_by_label("Replicas").fill("4")
    call(console, "PUT", "/v1/projects/default/members/lea", {"role": "viewer"})
    page.get_by_role("dialog").get_by_role("button", name="Scale", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Scale", exact=True)).to_have_count(0)
    assert call(console, "GET", "/v1/endpoints/of-lea")["replicas"] == 1
    page.context.close()
    console.complaints.clear()  # the refusal is 403
