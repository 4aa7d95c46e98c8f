"""Pipelines and reloads in the web console, for ``drive_changes.py``."""

import re
from collections.abc import Callable
from typing import Any

from console_page import Console, confirm
from playwright.sync_api import Locator, Page, expect

Call = Callable[..., Any]
SMALL = {"cpu": 0.1, "mem": "16MiB"}
SERVE = """trap 'echo again' HUP; echo '{"message": "serving"}' > $MOORAGE_PROGRESS
while :; do sleep 0.1; done"""
TRAIN = """echo '{"fraction": 0.4, "step": 2, "of": 5}' > $MOORAGE_PROGRESS; exec sleep 1d"""


def pipelines(console: Console, page: Page, call: Call) -> None:
    """A pipeline that runs, is stopped, and is resumed from where it stopped."""
    console.go(page, "pipelines", "Pipelines")
    expect(page.get_by_text("No pipelines yet")).to_be_visible()
    console.go_without(page, "pipelines/nothing", "no pipeline 'nothing'")
    steps = [
        {"name": "prepare", "spec": {"command": ["true"], "resources": SMALL}},
        {
            "name": "train",
            "after": ["prepare"],
            "spec": {"command": ["sh", "-c", TRAIN], "resources": SMALL},
        },
        {
            "name": "alarm",
            "after": [{"step": "train", "on": "failure"}],
            "spec": {"command": ["true"], "resources": SMALL},
        },
        {
            "name": "part",
            "array": "0-2",
            "after": ["train"],
            "spec": {"command": ["true"], "resources": SMALL},
        },
    ]
    call(console, "POST", "/v1/pipelines", {"name": "digits", "steps": steps})
    console.go(page, "pipelines", "Pipelines")
    page.get_by_role("link", name="digits").press("Enter")
    expect(page.get_by_role("heading", name="digits", level=1)).to_be_focused()
    train = step(page, "train")
    expect(train.get_by_text("Running")).to_be_visible()
    expect(train.get_by_text("40 % · 2 of 5")).to_be_visible()
    picture(page)
    elements = page.get_by_role("group", name="Elements of part")
    first = elements.get_by_role("button", name="0: Pending")
    first.focus()
    page.keyboard.press("ArrowRight")
    expect(elements.get_by_role("button", name="1: Pending")).to_be_focused()
    console.check(page, "pipeline")
    page.screenshot(path=console.pictures / "pipeline.png")
    page.get_by_role("button", name="Stop", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    expect(dialog.get_by_text("1 running step gets SIGTERM, then SIGKILL.")).to_be_visible()
    expect(dialog.get_by_text("4 pending steps are cancelled.")).to_be_visible()
    console.check(page, "stop of a pipeline")
    confirm(page, "Stop")
    expect(page.locator(".lead").get_by_text("Stopped")).to_be_visible()
    expect(page.get_by_role("button", name="Stop", exact=True)).to_have_count(0)
    page.get_by_label("Status").first.click()
    page.get_by_role("option", name="Succeeded (1)").click()
    expect(page.get_by_role("row")).to_have_count(2)
    assert page.url.endswith("?state=succeeded"), page.url
    page.go_back()
    page.go_forward()
    page.get_by_role("button", name="Resume").click()
    expect(dialog.get_by_text("1 step that succeeded is kept")).to_be_visible()
    confirm(page, "Resume")
    console.go(page, "pipelines/digits", "digits")
    expect(train.get_by_text("Running")).to_be_visible()
    expect(step(page, "prepare").get_by_text("Succeeded")).to_be_visible()
    expect(step(page, "prepare").get_by_text(re.compile(r"^\d+ s$"))).to_be_visible()
    train.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("train-")
    expect(page.get_by_text("40 % · 2 of 5")).to_be_visible()
    first_failure(console, page, call)


def first_failure(console: Console, page: Page, call: Call) -> None:
    """The page of a failed pipeline names the step that failed first, and what it caused."""
    steps = [
        {"name": "bad", "spec": {"command": ["false"], "resources": SMALL}},
        {"name": "later", "after": ["bad"], "spec": {"command": ["true"], "resources": SMALL}},
    ]
    call(console, "POST", "/v1/pipelines", {"name": "broken", "steps": steps})
    console.go(page, "pipelines/broken", "broken")
    facts = page.locator(".facts")
    expect(facts.get_by_text("exit code 1")).to_be_visible()
    expect(facts.get_by_text("1 step was skipped because of it: later")).to_be_visible()
    expect(facts.get_by_role("link", name="bad")).to_be_visible()


def step(page: Page, name: str) -> Locator:
    """The pipeline's row. Its name also appears in the rows of pipelines that depend on it."""
    first = page.locator("td:first-child").filter(has_text=re.compile(f"^{name}$"))
    return page.get_by_role("row").filter(has=first)


def picture(page: Page) -> None:
    """The browser has drawn the graph, and the keyboard reaches whatever scrolls."""
    image = page.get_by_role("img", name="Graph of digits with 4 steps")
    expect(image).to_be_visible()
    image.evaluate("image => image.decode()")
    page.locator("section.picture").focus()
    expect(page.locator("section.picture")).to_be_focused()


def reloads(console: Console, page: Page, call: Call) -> None:
    """One program reads its settings again; another has no handler for the signal."""
    for name, signal in (("daemon", "HUP"), ("deaf", "USR1")):
        spec = {
            "name": name,
            "command": ["sh", "-c", SERVE],
            "resources": SMALL,
            "reload": {"signal": signal},
        }
        call(console, "POST", "/v1/sessions", spec)

    for name, answer in (("daemon", "Reloaded"), ("deaf", "no handler for SIGUSR1")):
        console.go(page, f"sessions/{name}", name)
        expect(page.get_by_text("serving")).to_be_visible()
        page.get_by_role("button", name="Reload").click()
        expect(page.get_by_text(f"{name} is reloading its settings")).to_be_visible()
        acknowledgement = page.get_by_role("region", name="Reload")
        expect(acknowledgement.get_by_text(answer)).to_be_visible()
        console.check(page, f"reload of {name}")

    page.screenshot(path=console.pictures / "reload.png")
