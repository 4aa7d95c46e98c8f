"""The console's forms and editors, for the scripts that fill them."""

import json
import re
import sys
import urllib.request
from typing import Any
from urllib.error import HTTPError

from console_page import Console
from playwright.sync_api import Locator, Page, expect


def call(console: Console, method: str, path: str, body: object = None) -> Any:
    """The REST API's answer to another client."""
    given = {"Authorization": f"Bearer {console.key}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(console.url + path, data, given, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())


def exists(console: Console, path: str) -> bool:
    try:
        call(console, "GET", path)
    except HTTPError as error:
        if error.code != 404:
            raise
        return False
    return True


def names(console: Console, path: str) -> list[str]:
    return [item["name"] for item in call(console, "GET", path)["items"]]


def ask(moment: str) -> None:
    """Ask the test to do something, and wait until it has done it."""
    print(moment, flush=True)
    sys.stdin.readline()


def editor(page: Page) -> Locator:
    return page.get_by_label("Specification", exact=True)


def mode(page: Page, name: str) -> None:
    """Show the specification as Form, YAML or JSON."""
    page.locator("label").filter(has_text=re.compile(f"^{name}$")).click()
    if name != "Form":
        expect(editor(page)).to_be_visible()


def opened(page: Page, title: str) -> Locator:
    """A part of the form, opened."""
    part = page.locator("details").filter(has=page.locator("summary", has_text=title))
    if part.get_attribute("open") is None:
        part.locator("summary").click()
    return part


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def field(page: Page, label: str) -> Locator:
    """A field by its whole label, with or without the mark of a required one."""
    return page.get_by_label(re.compile(rf"^{label}(\s*\*)?$")).first


def error_of(page: Page, label: str) -> Locator:
    """The text below a field that is wrong."""
    wrong = field(page, label)
    expect(wrong).to_have_attribute("aria-invalid", "true")
    described = (wrong.get_attribute("aria-describedby") or "").split()
    return page.locator(f"[id='{next(one for one in described if one.endswith('-error'))}']")


def look(console: Console, page: Page, name: str) -> None:
    """axe and a picture, in both themes and the widths of a phone and a screen."""
    size = page.viewport_size
    for scheme, width in (("light", 1440), ("dark", 360)):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.set_viewport_size({"width": width, "height": 900})
        console.check(page, f"{name} {scheme} {width}")
        page.screenshot(path=console.pictures / f"{name}-{scheme}-{width}.png", full_page=True)

    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    page.set_viewport_size(size)
