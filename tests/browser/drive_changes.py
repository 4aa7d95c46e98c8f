"""Operates the web console while things change underneath: ``python drive_changes.py URL KEY
PICTURES``.

Two administrators edit one group, groups are retired, a shell runs in a session, a pipeline is
stopped and resumed, programs are reloaded, the browser's clock is wrong, and the manager restarts.
Prints a line for each moment at which the test has to act, waits for a line from it, and prints
what it has seen as JSON at the end.
"""

import json
import re
import sys
import urllib.request
from pathlib import Path
from typing import Any

from console_page import CHROMIUM, Console, confirm
from playwright.sync_api import Page, expect, sync_playwright
from workload_pages import pipelines, reloads

WRONG_CLOCK = """{
  const Right = Date, shift = -5 * 3600 * 1000;
  Date = class extends Right {
    constructor(...given) { given.length ? super(...given) : super(Right.now() + shift); }
    static now() { return Right.now() + shift; }
  };
}"""


def call(console: Console, method: str, path: str, body: object = None, **headers: str) -> Any:
    """A call by another administrator."""
    given = {"Authorization": f"Bearer {console.key}", "Content-Type": "application/json"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(console.url + path, data, given, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())


def ask(moment: str) -> None:
    """Ask the test to do something, and wait until it has done it."""
    print(moment, flush=True)
    sys.stdin.readline()


def change(console: Console, name: str, **options: object) -> None:
    before = call(console, "GET", f"/v1/groups/{name}")["options"]
    call(console, "PUT", f"/v1/groups/{name}", before | options)


def two_administrators(console: Console, page: Page) -> str:
    """How the page reports another administrator's change."""
    call(console, "PUT", "/v1/groups/lab", {})
    console.go(page, "groups/lab", "lab")
    page.get_by_role("button", name="Edit").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Purpose").fill("mine")
    change(console, "lab", strategy="lifo")
    dialog.get_by_role("button", name="Save").click()
    said = dialog.get_by_role("alert")
    expect(said.get_by_role("row").filter(has_text="lifo")).to_be_visible()
    text = said.inner_text()
    page.screenshot(path=console.pictures / "conflict.png")
    console.check(page, "conflict")
    said.get_by_role("button", name="Use the current values").click()
    expect(dialog.get_by_label("Queue order").first).to_have_value("lifo")
    expect(dialog.get_by_label("Purpose")).to_have_value("")
    dialog.get_by_label("Purpose").fill("mine")
    dialog.get_by_label("Permitted projects").fill("vision")
    dialog.get_by_label("Permitted projects").press("Enter")
    change(console, "lab", max_bypasses=7)
    dialog.get_by_role("button", name="Save").click()
    said.get_by_role("button", name="Overwrite with mine").click()
    expect(dialog).to_have_count(0)
    options = call(console, "GET", "/v1/groups/lab")["options"]
    assert options["description"] == "mine", options
    assert (options["projects"], options["max_bypasses"]) == (["vision"], 100), options
    console.complaints.clear()  # the refusals are 412

    return text


def priorities(console: Console, page: Page) -> None:
    """Preemption and a group's maximum priorities: set, shown, and removed."""
    console.go(page, "groups/lab", "lab")
    page.get_by_role("button", name="Edit").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Seconds to save state")).to_have_count(0)
    dialog.get_by_label("Lower-priority sessions").select_option("end")
    dialog.get_by_label("Stopped first").select_option("smallest")
    dialog.get_by_label("Stopped for").select_option("same-user")
    dialog.get_by_label("Seconds to save state").fill("120")
    dialog.get_by_label("Highest priority for members").fill("50")
    console.check(page, "preemption of a group")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    options = call(console, "GET", "/v1/groups/lab")["options"]
    given = {
        "how": "end",
        "order": "smallest",
        "min_runtime_s": 0,
        "among": "same-user",
        "max_grace_s": 120,
    }
    assert options["preemption"] == given, options
    assert options["max_priority"] == {"member": 50, "project_admin": 100}, options
    expect(page.get_by_text("end, smallest first, among: same-user")).to_be_visible()
    expect(page.get_by_text("members 50, project administrators 100")).to_be_visible()
    page.get_by_role("button", name="Edit").click()
    expect(dialog.get_by_label("Seconds to save state")).to_have_value("120")
    dialog.get_by_label("Lower-priority sessions").select_option("never")
    for role in ("members", "project administrators"):
        dialog.get_by_label(f"Highest priority for {role}").fill("")

    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    options = call(console, "GET", "/v1/groups/lab")["options"]
    assert (options["preemption"], options["max_priority"]) == (None, None), options


def newer_row(console: Console, page: Page) -> str:
    """The page's text while a session is stored in a newer release's format."""
    console.go(page, "sessions", "Sessions")
    banner = page.get_by_role("status").filter(has_text="a newer manager")
    expect(banner).to_have_count(0)
    ask("newer row")
    another = {"command": ["true"], "resources": {"cpu": 0.1, "mem": "16MiB"}}
    call(console, "POST", "/v1/sessions", another)  # the page reads the list again
    expect(banner).to_be_visible()
    text = banner.inner_text()
    expect(page.get_by_role("link", name="shell")).to_be_visible()
    console.check(page, "newer row")
    ask("known row")
    call(console, "POST", "/v1/sessions", another)
    expect(banner).to_have_count(0)

    return text


def jobs_of_a_site(console: Console, page: Page) -> None:
    console.go(page, "groups", "Resource groups")
    page.get_by_role("button", name="New resource group").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("site")
    dialog.get_by_text("Jobs of a supercomputer").click()
    dialog.get_by_label("Walltime in hours").fill("0")
    expect(dialog.get_by_role("button", name="Create")).to_be_disabled()
    dialog.get_by_label("Walltime in hours").fill("2")
    dialog.get_by_label("Partition").fill("gpu")
    console.check(page, "group of a site")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="New resource group").click()
    dialog.get_by_label("Name").fill("site")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text("there is a resource group")
    page.keyboard.press("Escape")
    hpc = call(console, "GET", "/v1/groups/site")["options"]["hpc"]
    assert (hpc["runtime"], hpc["walltime_s"], hpc["partition"]) == ("slurm", 7200, "gpu"), hpc


def rename(console: Console, page: Page) -> None:
    """The page carries on under the new name, and the former one is an alias."""
    console.go(page, "groups/site", "site")
    page.get_by_role("button", name="Rename").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Rename", exact=True)).to_be_disabled()
    dialog.get_by_label("New name").fill("default")
    dialog.get_by_role("button", name="Rename", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("default")
    console.complaints.clear()  # the refusal is a 409
    dialog.get_by_label("New name").fill("center")
    console.check(page, "rename of a group")
    dialog.get_by_role("button", name="Rename", exact=True).click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("heading", name="center", exact=True)).to_be_visible()
    assert call(console, "GET", "/v1/groups/site")["name"] == "center"


def retire(console: Console, page: Page) -> str:
    """The reason shown for not retiring a group that is in use."""
    console.go(page, "groups/default", "default")
    page.get_by_role("button", name="Retire").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Type default to confirm").fill("default")
    dialog.get_by_role("button", name="Retire", exact=True).click()
    refusal = dialog.get_by_role("alert").inner_text()
    dialog.get_by_label("Retire it even while it is in use").check()
    confirm(page, "Retire")
    expect(page.get_by_text("Retired: nothing new")).to_be_visible()
    page.get_by_role("button", name="Bring back").click()
    expect(page.get_by_text("Retired: nothing new")).to_have_count(0)
    console.complaints.clear()  # the refusal is a 409

    return refusal


def shell(console: Console, page: Page) -> None:
    console.go(page, "sessions/shell", "shell")
    page.get_by_role("tab", name="Terminal").click()
    terminal = page.locator(".terminal")
    expect(terminal.locator(".xterm-rows")).to_be_visible()

    # A key typed before the shell is listening is lost.
    expect(terminal.locator(".xterm-rows")).to_contain_text(re.compile("[#$] *$"))
    page.keyboard.type("echo six-$((3+4)); stty size\n")
    expect(terminal.locator(".xterm-rows")).to_contain_text("six-7")
    page.screenshot(path=console.pictures / "shell.png")
    console.check(page, "terminal")
    page.keyboard.type("exit 3\n")
    expect(page.get_by_text("The shell ended with exit code 3.")).to_be_visible()


def no_shell(console: Console, page: Page) -> str:
    """The reason shown for the missing shell in a replica."""
    [replica] = call(console, "GET", "/v1/sessions?endpoint=tiny")["items"]
    console.go(page, f"sessions/{replica['id']}", replica["name"])
    page.get_by_role("tab", name="Terminal").click()
    text = page.get_by_role("alert").inner_text()
    console.complaints.clear()  # the refusal is a 409
    return text


def own_password(console: Console) -> None:
    for project in ("vision", "speech"):
        call(console, "POST", "/v1/projects", {"name": project})

    call(console, "POST", "/v1/users", {"name": "ann"})
    for project in ("vision", "speech"):
        call(console, "PUT", f"/v1/projects/{project}/members/ann", {"role": "member"})

    call(console, "PUT", "/v1/users/ann/password", {"password": "first-secret"})
    page = console.open()
    for password in ("first-secret", "second-secret"):
        page.goto(f"{console.url}/console/")
        page.get_by_text("Password", exact=True).click()
        page.get_by_label("User").fill("ann")
        page.locator("input[type=password]").fill(password)
        page.get_by_role("button", name="Sign in", exact=True).click()
        who = page.locator("button.who")
        expect(who).to_contain_text("ann")
        if password == "second-secret":
            break

        other = "speech" if "vision" in who.inner_text() else "vision"
        who.click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Project").first.click()
        page.get_by_role("option", name=other).click()
        expect(who).to_contain_text(other)
        dialog.get_by_label("Current password").fill("first-secret")
        dialog.get_by_label("New password").fill("second-secret")
        console.check(page, "account")
        dialog.get_by_role("button", name="Change password").click()
        expect(dialog).to_have_count(0)
        page.get_by_role("button", name="Sign out").click()

    page.context.close()
    console.complaints.clear()  # the answer to "Who am I?" is 401 before sign-in


def wrong_clock(console: Console) -> str:
    """The age of a session that has just started, on a page whose clock is five hours slow."""
    page = console.open()
    page.add_init_script(WRONG_CLOCK)
    console.sign_in(page)
    expect(page.get_by_text("This computer's clock is")).to_be_visible()
    console.go(page, "sessions?name=shell", "Sessions")
    age = page.get_by_role("row").filter(has_text="shell").locator("time").first.inner_text()
    page.context.close()
    return age


def restart(console: Console, page: Page) -> None:
    console.go(page, "sessions", "Sessions")
    expect(page.locator(".liveness")).to_contain_text("Live")
    ask("stop")
    expect(page.get_by_role("alert").filter(has_text="has not answered")).to_be_visible()
    expect(page.get_by_role("link", name="shell")).to_be_visible()
    page.screenshot(path=console.pictures / "silent.png")
    ask("start")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator(".liveness")).to_contain_text("Live")
    ask("create")
    expect(
        page.get_by_text("after-the-restart").or_(page.get_by_text(re.compile("new$"))).first
    ).to_be_visible()
    console.complaints.clear()  # requests that were not answered


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
            seen["conflict"] = two_administrators(console, page)
            priorities(console, page)
            seen["newer"] = newer_row(console, page)
            jobs_of_a_site(console, page)
            rename(console, page)
            seen["refusal"] = retire(console, page)
            seen["no shell"] = no_shell(console, page)
            shell(console, page)
            pipelines(console, page, call)
            reloads(console, page, call)
            own_password(console)
            seen["age"] = wrong_clock(console)
            restart(console, page)
        except Exception:
            page.screenshot(path=pictures / "failed.png")
            raise

        browser.close()

    print(json.dumps(seen | {"complaints": console.complaints, "axe": console.axe}))


main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
