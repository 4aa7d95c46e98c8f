"""Operates the files of a session in the web console: ``python drive_files.py URL KEY PICTURES``.

Expects a running session ``dev`` with the files of ``test_files.py``, and files to upload in
PICTURES. Prints the names that it stored and what it has seen as JSON at the end.
"""

import json
import re
import sys
import tarfile
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from console_page import CHROMIUM, WIDTHS, Console, confirm
from playwright.sync_api import Locator, Page, expect, sync_playwright

HOSTILE = "<img src=x onerror=alert(1)>.txt"
REVERSED = "\u202etxt.exe"
SHOWN = "\\u202etxt.exe"  # the invisible character that reverses the text
LONG = "x" * 200
# 300 kB/s, with which the files below take long.
SLOW = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 300_000}


def call(console: Console, path: str, method: str = "GET") -> bytes:
    headers = {"Authorization": f"Bearer {console.key}"}
    request = urllib.request.Request(console.url + path, headers=headers, method=method)
    with urllib.request.urlopen(request) as answer:
        return bytes(answer.read())


def content(console: Console, path: str) -> bytes:
    asked = urllib.parse.urlencode({"path": path})
    return call(console, f"/v1/sessions/dev/files/content?{asked}")


def names(console: Console, path: str = ".") -> list[str]:
    asked = urllib.parse.urlencode({"path": path})
    listed = json.loads(call(console, f"/v1/sessions/dev/files?{asked}"))
    return [file["name"] for file in listed["files"]]


def row_of(page: Page, name: str) -> Locator:
    return page.get_by_role("table", name="Files").get_by_role("row").filter(has_text=name)


def go(console: Console, page: Page, path: str = "") -> None:
    asked = urllib.parse.urlencode({"tab": "files"} | ({"path": path} if path else {}))
    console.go(page, f"sessions/dev?{asked}", "dev")


def lists(console: Console, page: Page) -> None:
    """Every name is text, and the address has the directory."""
    console.go(page, "sessions/dev", "dev")
    page.get_by_role("tab", name="Files").click()
    expect(row_of(page, HOSTILE)).to_contain_text("5 B")
    expect(row_of(page, SHOWN)).to_be_visible()
    expect(row_of(page, LONG)).to_be_visible()
    expect(page.locator("table img")).to_have_count(0)
    console.check(page, "files")
    page.get_by_role("button", name="sub/").click()
    expect(row_of(page, "inner.txt")).to_be_visible()
    expect(page.get_by_label("Directory")).to_have_value(re.compile("/sub$"))
    page.reload()
    expect(row_of(page, "inner.txt")).to_be_visible()
    page.get_by_role("button", name="Up", exact=True).click()
    expect(row_of(page, HOSTILE)).to_be_visible()
    page.get_by_label("Directory").fill("/")
    page.get_by_label("Directory").press("Enter")
    expect(page.get_by_role("button", name="etc/")).to_be_visible()
    expect(page.get_by_role("button", name="Up", exact=True)).to_be_disabled()
    for outside, said in (
        ("/../../nothing", "there is no /../../nothing"),
        ("sub/inner.txt", "is not a directory"),
    ):
        page.get_by_label("Directory").fill(outside)
        page.get_by_role("button", name="Open", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text(said)

    console.complaints.clear()  # the refusals are 404
    page.get_by_role("button", name="Start directory").click()
    expect(row_of(page, HOSTILE)).to_be_visible()


def downloads(console: Console, page: Page) -> None:
    go(console, page)
    with page.expect_download() as started:
        row_of(page, HOSTILE).get_by_role("button", name="Download").click()

    stored = started.value
    assert Path(stored.path()).read_bytes() == content(console, HOSTILE) == b"hello"
    # Chromium replaces the characters that a file name of some system must not have.
    assert stored.suggested_filename == "_img src=x onerror=alert(1)_.txt", stored
    with page.expect_download() as started:
        row_of(page, "sub/").get_by_role("button", name="Download .tar").click()

    assert started.value.suggested_filename == "sub.tar"
    with tarfile.open(started.value.path()) as tar:
        assert tar.getnames() == ["./sub", "./sub/inner.txt"]

    expect(row_of(page, "closed").get_by_role("button")).to_have_count(0)  # a pipe


def pick(page: Page, *files: Path) -> None:
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Upload files").click()

    chooser.value.set_files(list(files))


def uploads(console: Console, page: Page, local: Path) -> None:
    """By picker and by drop; a file that exists is replaced only after a confirmation."""
    go(console, page)
    pick(page, local / "first.bin", local / f"{LONG[1:]}y")
    stored = page.get_by_role("region", name="Uploads")
    expect(stored.get_by_text("stored", exact=True)).to_have_count(2)
    expect(row_of(page, "first.bin")).to_be_visible()
    assert content(console, "first.bin") == (local / "first.bin").read_bytes()
    page.get_by_role("button", name="Clear the list").click()
    expect(stored).to_have_count(0)

    (local / "first.bin").write_bytes(b"second")
    pick(page, local / "first.bin")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("first.bin")).to_be_visible()
    console.check(page, "replace a file")
    dialog.get_by_role("button", name="Cancel").click()
    assert content(console, "first.bin") != b"second"
    pick(page, local / "first.bin")
    confirm(page, "Replace")
    expect(stored.get_by_text("stored", exact=True)).to_have_count(1)
    assert content(console, "first.bin") == b"second"

    drop(page, {HOSTILE.replace(".txt", ".dropped"): "<b>", "sub": "taken"})
    expect(page.get_by_role("alert")).to_contain_text("sub is already in the session")
    expect(row_of(page, ".dropped")).to_be_visible()
    assert content(console, HOSTILE.replace(".txt", ".dropped")) == b"<b>"


def drop(page: Page, files: dict[str, str]) -> None:
    transfer = page.evaluate_handle(
        """(files) => {
          const transfer = new DataTransfer();
          for (const [name, text] of Object.entries(files)) {
            transfer.items.add(new File([text], name));
          }
          return transfer;
        }""",
        files,
    )
    place = page.get_by_role("region", name="Listed files")
    place.dispatch_event("dragover", {"dataTransfer": transfer})
    expect(place).to_have_attribute("data-over", "true")
    place.dispatch_event("drop", {"dataTransfer": transfer})
    expect(place).not_to_have_attribute("data-over", "true")


def refused_uploads(console: Console, page: Page, local: Path) -> None:
    """A directory that takes no files, and an upload that the user cancels."""
    go(console, page, "/proc")
    pick(page, local / "first.bin")
    stored = page.get_by_role("region", name="Uploads")
    expect(stored.get_by_role("alert")).to_contain_text("failed to copy")
    console.check(page, "upload that is refused")
    console.complaints.clear()  # the refusal is a 409
    page.get_by_role("button", name="Clear the list").click()

    go(console, page)
    link = page.context.new_cdp_session(page)
    link.send("Network.enable")
    link.send("Network.emulateNetworkConditions", SLOW)
    pick(page, local / "large.bin", local / "first.bin")
    confirm(page, "Replace")
    bar = page.get_by_role("progressbar", name="Progress of large.bin")
    expect(bar).not_to_have_attribute("aria-valuenow", "0")
    expect(stored.get_by_text("waiting")).to_be_visible()
    console.check(page, "upload")
    page.get_by_role("tab", name="Timeline").click()  # the upload goes on meanwhile
    page.get_by_role("tab", name="Files").click()
    page.get_by_role("button", name="Cancel the upload of large.bin").click()
    expect(stored.get_by_text("cancelled")).to_be_visible()
    expect(stored.get_by_text("stored", exact=True)).to_have_count(1)
    assert "large.bin" not in names(console)
    link.detach()


def pictures(console: Console, page: Page) -> None:
    for scheme in ("light", "dark"):
        for width, (wide, high) in {**WIDTHS, "middle": (768, 900), "large": (1440, 900)}.items():
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": wide, "height": high})
            expect(row_of(page, LONG)).to_be_visible()
            console.check(page, f"files {scheme} {width}")
            page.screenshot(path=console.pictures / f"files-{scheme}-{width}.png", full_page=True)

    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1280, "height": 800})


def session_that_ends(console: Console, page: Page, local: Path) -> str:
    """What the page says when a session ends while a file is sent to it."""
    go(console, page)
    link = page.context.new_cdp_session(page)
    link.send("Network.enable")
    link.send("Network.emulateNetworkConditions", SLOW)
    pick(page, local / "large.bin")
    bar = page.get_by_role("progressbar", name="Progress of large.bin")
    expect(bar).not_to_have_attribute("aria-valuenow", "0")
    call(console, "/v1/sessions/dev/stop", "POST")
    said = page.get_by_role("region", name="Uploads").get_by_role("alert")
    expect(said).to_be_visible()
    page.screenshot(path=console.pictures / "files-ended.png")
    console.check(page, "files of a session that has ended")
    text = said.inner_text()
    console.complaints.clear()  # the upload and the list are refused
    link.detach()
    return text


def main(url: str, key: str, pictures_folder: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        console = Console(browser, url, key, pictures_folder)
        page = console.open()
        seen: dict[str, Any] = {}
        try:
            console.sign_in(page)
            lists(console, page)
            downloads(console, page)
            uploads(console, page, pictures_folder)
            pictures(console, page)
            refused_uploads(console, page, pictures_folder)
            seen["names"] = names(console)
            seen["ended"] = session_that_ends(console, page, pictures_folder)
        except Exception:
            page.screenshot(path=pictures_folder / "failed.png")
            raise

        browser.close()

    print(json.dumps(seen | {"complaints": console.complaints, "axe": console.axe}))


main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
