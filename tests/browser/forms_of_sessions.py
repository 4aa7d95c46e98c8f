"""Forms of sessions, for ``drive_forms.py``."""

import re

from console_page import Console, confirm
from form_page import ask, call, editor, error_of, exists, field, look, mode, opened, press
from playwright.sync_api import Page, expect

PENDING = "starts_at: 2099-01-01T00:00:00Z"


def sessions(console: Console, page: Page) -> None:
    form(console, page)
    bad_fields(console, page)
    text(console, page)
    keyboard(console, page)
    again(console, page)
    page_of_a_session(console, page)
    changes(console, page)


def form(console: Console, page: Page) -> None:
    """Everything that the form has, and what a dry run says about it."""
    console.go(page, "new-session", "New session")
    field(page, "Name").fill("formed")
    page.get_by_label("Priority").fill("7")
    page.get_by_label("Command").fill("sleep 60")
    page.get_by_label("CPU").fill("0.5")
    page.get_by_label("Memory").fill("32MiB")

    part = opened(page, "Environment and secrets")
    part.get_by_role("button", name="Add a variable").click()
    part.get_by_label("Name").fill("SEED")
    part.get_by_label("Value").fill("1")
    part.get_by_role("button", name="Add a secret").click()
    part.get_by_label("Name").nth(1).fill("HF_TOKEN")
    part.get_by_label("Secret", exact=True).fill("hub")
    page.keyboard.press("Escape")

    part = opened(page, "Service ports")
    part.get_by_role("button", name="Add a port").click()
    part.get_by_label("Name").fill("web")
    part.get_by_label("Serves its own path").check()

    part = opened(page, "Time limits and retries")
    part.get_by_label("Time limit of a run").fill("1h30m")
    part.get_by_label("Retries").fill("2")
    part.get_by_label("Earliest start").fill("2099-01-01T00:00:00Z")
    part.get_by_label("Working directory").select_option("keep")

    part = opened(page, "Dependencies")
    part.get_by_role("button", name="Add a session").click()
    part.get_by_label("Session", exact=True).fill("first")
    page.keyboard.press("Escape")
    part.get_by_label("Required outcome").select_option("any")

    part = opened(page, "Labels and agents")
    part.get_by_role("button", name="Add a label").click()
    part.get_by_label("Name").fill("team")
    part.get_by_label("Value").fill("vision")

    press(page, "Dry run")
    expect(page.locator(".why-text")).to_be_visible()
    assert not exists(console, "/v1/sessions/formed"), "a dry run creates nothing"
    look(console, page, "form-session")
    press(page, "Create")
    expect(page.get_by_role("heading", name="formed", exact=True)).to_be_visible()

    made = call(console, "GET", "/v1/sessions/formed")
    spec = made["spec"]
    assert made["priority"] == 7, made
    assert made["user_labels"] == {"team": "vision"}, made
    assert spec["command"] == ["/bin/sh", "-c", "sleep 60"], spec
    assert (spec["resources"], spec["env"]) == ({"cpu": 0.5, "mem": "32MiB"}, {"SEED": "1"}), spec
    assert spec["secret_env"] == {"HF_TOKEN": "hub"}, spec
    assert (spec["timeout_s"], spec["retries"], spec["workspace"]) == (5400, 2, "keep"), spec
    assert [(port["name"], port["base_path"]) for port in spec["ports"]] == [("web", True)], spec
    first = call(console, "GET", "/v1/sessions/first")
    waits = [(one["session"], one["on"]) for one in spec["depends_on"]]
    assert waits in ([("first", "any")], [(first["id"], "any")]), spec

    console.go(page, "new-session", "New session")
    field(page, "Name").fill("pair")
    page.get_by_label("Command").fill("sleep 60")
    part = opened(page, "Cluster")
    part.get_by_label("Kernels", exact=True).fill("2")
    press(page, "Create")
    expect(page.get_by_role("heading", name="pair", exact=True)).to_be_visible()
    assert call(console, "GET", "/v1/sessions/pair")["spec"]["cluster"]["size"] == 2


def bad_fields(console: Console, page: Page) -> None:
    """The manager's error is shown at its field, which gets the focus, and nothing is created."""
    console.go(page, "new-session", "New session")
    field(page, "Name").fill("bad")
    page.get_by_label("Command").fill("true")
    page.get_by_label("Priority").fill("500")
    press(page, "Create")
    expect(error_of(page, "Priority")).to_contain_text("less than or equal to 100")
    expect(page.get_by_label("Priority")).to_be_focused()
    page.get_by_label("Priority").fill("5")
    expect(page.get_by_label("Priority")).not_to_have_attribute("aria-invalid", "true")

    page.get_by_label("Memory").fill("much")
    press(page, "Dry run")
    expect(error_of(page, "Memory")).to_contain_text("much")
    page.get_by_label("Memory").fill("16MiB")

    page.get_by_label("Command").fill("")
    press(page, "Create")
    expect(error_of(page, "Command")).to_contain_text("requires `command`")
    page.get_by_label("Command").fill("true")

    part = opened(page, "Service ports")
    part.get_by_role("button", name="Add a port").click()
    part.get_by_label("Name").fill("Not A Name")
    press(page, "Create")
    expect(part.get_by_label("Name")).to_have_attribute("aria-invalid", "true")
    expect(part.get_by_label("Name")).to_be_focused()
    part.get_by_role("button", name="Remove Service ports 1").click()

    part = opened(page, "Time limits and retries")
    part.get_by_label("Time limit of a run").fill("2 hous")
    press(page, "Create")
    expect(error_of(page, "Time limit of a run")).to_contain_text("number")
    console.check(page, "bad fields of a session")
    assert not exists(console, "/v1/sessions/bad"), "nothing half-made"
    console.complaints.clear()  # the refusals are 4xx


def text(console: Console, page: Page) -> None:
    """The editor holds what the form holds. It names lines, and keeps a text that is wrong."""
    console.go(page, "new-session", "New session")
    field(page, "Name").fill("written")
    page.get_by_label("Command").fill("sleep 60")
    mode(page, "YAML")
    expect(editor(page)).to_have_value(re.compile("^type: batch\n(?s:.*)name: written\n"))
    mode(page, "JSON")
    expect(editor(page)).to_have_value(re.compile('"name": "written"'))
    mode(page, "YAML")

    good = editor(page).input_value()
    editor(page).fill(good + "env: [\n")
    page.locator("label").filter(has_text=re.compile("^Form$")).click()
    expect(page.locator(".editor-errors li").first).to_contain_text("Line")
    expect(editor(page)).to_have_value(good + "env: [\n")

    editor(page).fill(good + PENDING + "\nprority: 3\nports:\n  - name: ok\n  - nam: web\n")
    lines = editor(page).input_value().split("\n")
    press(page, "Create")
    errors = page.locator(".editor-errors li")
    wrong = errors.filter(has_text="did you mean 'priority'")
    expect(wrong).to_contain_text(f"Line {lines.index('prority: 3') + 1} ")
    within = errors.filter(has_text="ports[1].nam: unknown field")
    expect(within).to_contain_text(f"Line {lines.index('  - nam: web') + 1} ")
    wrong.get_by_role("button").press("Enter")
    expect(editor(page)).to_be_focused()
    chosen = page.evaluate(
        "(({value, selectionStart: a, selectionEnd: b}) => value.slice(a, b))(document.activeElement)"
    )
    assert chosen == "prority: 3", chosen
    look(console, page, "editor-errors")
    assert not exists(console, "/v1/sessions/written")

    editor(page).fill(good + PENDING + "\npriority: 3\nretry_backoff_s: 9\n")
    press(page, "Dry run")
    expect(page.locator(".why-text")).to_be_visible()
    mode(page, "Form")
    expect(page.get_by_label("Priority")).to_have_value("3")
    page.get_by_label("Priority").fill("4")
    press(page, "Create")
    expect(page.get_by_role("heading", name="written", exact=True)).to_be_visible()
    made = call(console, "GET", "/v1/sessions/written")
    assert (made["priority"], made["spec"]["retry_backoff_s"]) == (4, 9), (
        "what the form lacks stays"
    )
    console.complaints.clear()  # the refusals are 4xx


def keyboard(console: Console, page: Page) -> None:
    """A session is created without a pointer."""
    console.go(page, "new-session", "New session")
    field(page, "Name").focus()
    page.keyboard.type("keyed")
    page.get_by_label("Command").focus()
    page.keyboard.type("sleep 60")
    page.get_by_role("radio", name="Form").focus()
    page.keyboard.press("ArrowRight")
    expect(editor(page)).to_be_visible()
    editor(page).focus()
    page.keyboard.press("Control+End")
    page.keyboard.type("env:\nSEED: 2")  # a new line below `env:` is indented
    expect(editor(page)).to_have_value(re.compile("env:\n  SEED: 2$"))
    page.keyboard.type("\n")
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    page.keyboard.type(PENDING.replace(": ", ": ", 1))
    page.keyboard.press("Tab")
    expect(editor(page)).not_to_be_focused()
    press_by_keyboard(page, "Create")
    error = page.locator(".editor-errors li").first
    expect(error).to_contain_text("env.SEED")
    value = editor(page).input_value().replace("SEED: 2", 'SEED: "2"')
    editor(page).fill(value)
    press_by_keyboard(page, "Create")
    expect(page.get_by_role("heading", name="keyed", exact=True)).to_be_focused()
    assert call(console, "GET", "/v1/sessions/keyed")["spec"]["env"] == {"SEED": "2"}
    console.complaints.clear()  # the refusal is a 4xx


def press_by_keyboard(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).focus()
    page.keyboard.press("Enter")


def again(console: Console, page: Page) -> None:
    """A session like another one, whose hidden values must be entered again."""
    spec = {
        "name": "original",
        "command": ["sleep", "60"],
        "env": {"API_KEY": "secret", "ROUND": "1"},
        "starts_at": "2099-01-01T00:00:00Z",
        "resources": {"cpu": 0.1, "mem": "16MiB"},
    }
    call(console, "POST", "/v1/sessions", spec)
    console.go(page, "sessions/original", "original")
    page.get_by_role("link", name="Start again like this").click()
    expect(page.get_by_role("heading", name="New session", exact=True)).to_be_visible()
    expect(page.get_by_label("Program and arguments")).to_have_value("sleep\n60")
    expect(page.get_by_role("alert")).to_contain_text("env.API_KEY")
    field(page, "Name").fill("copied")
    press(page, "Create")
    part = opened(page, "Environment and secrets")
    hidden = part.get_by_label("Value").nth(1)
    expect(hidden).to_have_value("***")
    expect(hidden).to_have_attribute("aria-invalid", "true")
    expect(part.get_by_text("the mask of a hidden value").first).to_be_visible()
    assert not exists(console, "/v1/sessions/copied")
    hidden.fill("another")
    part = opened(page, "Time limits and retries")
    part.get_by_label("Earliest start").fill("2099-01-01T00:00:00Z")
    look(console, page, "again")
    press(page, "Create")
    expect(page.get_by_role("heading", name="copied", exact=True)).to_be_visible()
    made = call(console, "GET", "/v1/sessions/copied")["spec"]
    assert made["command"] == ["sleep", "60"], made
    assert (made["env"]["ROUND"], made["resources"]) == ("1", spec["resources"]), made
    console.complaints.clear()  # the refusal is a 4xx


def page_of_a_session(console: Console, page: Page) -> None:
    """Rename, labels, extension and removal."""
    console.go(page, "sessions/original", "original")
    press(page, "Rename")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("New name").fill("not a name!")
    dialog.get_by_role("button", name="Rename", exact=True).click()
    expect(error_of(page, "New name")).to_contain_text("a name consists of")
    console.check(page, "rename of a session")
    dialog.get_by_label("New name").fill("renamed")
    confirm(page, "Rename")
    expect(page.get_by_role("heading", name="renamed", exact=True)).to_be_visible()

    press(page, "Labels")
    dialog.get_by_role("button", name="Add a label").click()
    dialog.get_by_label("Name").fill("stage")
    dialog.get_by_label("Value").fill("not a value!")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("label")
    call(console, "PATCH", "/v1/sessions/renamed", {"user_labels": {"team": "speech"}})
    dialog.get_by_label("Value").fill("prod")
    console.check(page, "labels of a session")
    confirm(page, "Save")
    labels = {"stage": "prod", "team": "speech"}
    found = call(console, "GET", "/v1/sessions/renamed")
    assert found["user_labels"] == labels, "labels that others set stay"
    press(page, "Labels")
    dialog.get_by_role("button", name="Remove Labels 1").click()
    confirm(page, "Save")
    found = call(console, "GET", "/v1/sessions/renamed")
    assert len(found["user_labels"]) == 1, found

    extend(console, page)
    press_stop_and_remove(console, page)
    console.complaints.clear()  # the refusals are 4xx


def changes(console: Console, page: Page) -> None:
    """What waits: its priority, time limit and hold. What runs: suspend, resume and requeue."""
    small = {"cpu": 0.1, "mem": "16MiB"}
    waiting = {"name": "waits", "command": ["true"], "starts_at": "2099-01-01T00:00:00Z"}
    call(console, "POST", "/v1/sessions", waiting | {"resources": small})
    agents = [agent["id"] for agent in call(console, "GET", "/v1/agents")["items"]]
    real = [agent for agent in agents if not agent.startswith("sim-")]  # others run no program
    moving = {"name": "moves", "command": ["sleep", "600"], "resources": small, "agents": real}
    call(console, "POST", "/v1/sessions", moving)
    console.go(page, "sessions/waits", "waits")
    press(page, "Change")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Priority").fill("3")
    dialog.get_by_label("Time limit").fill("soon")
    dialog.get_by_role("button", name="Save").click()
    expect(error_of(page, "Time limit")).to_be_visible()
    call(console, "PATCH", "/v1/sessions/waits", {"user_labels": {"team": "speech"}})
    dialog.get_by_label("Time limit").fill("2h")
    console.check(page, "change of a session")
    confirm(page, "Save")
    made = call(console, "GET", "/v1/sessions/waits")
    assert (made["priority"], made["spec"]["timeout_s"]) == (3, 7200), made
    assert made["user_labels"] == {"team": "speech"}, "what others change stays"

    press(page, "Hold")
    confirm(page, "Hold")
    expect(page.get_by_text("Held", exact=True)).to_be_visible()
    expect(page.locator(".why-text")).to_contain_text("held by")
    look(console, page, "held-session")
    press(page, "Release")
    confirm(page, "Release")
    expect(page.get_by_text("Held", exact=True)).to_be_hidden()

    console.go(page, "sessions/moves", "moves")
    press(page, "Suspend")
    confirm(page, "Suspend")
    expect(page.get_by_text("It keeps its devices, memory and ports").first).to_be_visible()
    look(console, page, "suspended-session")
    press(page, "Resume")
    confirm(page, "Resume")
    expect(page.get_by_role("button", name="Suspend", exact=True)).to_be_visible()
    press(page, "Requeue")
    confirm(page, "Requeue")
    expect(page.get_by_role("button", name="Suspend", exact=True)).to_be_visible()
    assert call(console, "GET", "/v1/sessions/moves")["attempt"] == 2
    for name in ("moves", "waits"):
        call(console, "POST", f"/v1/sessions/{name}/stop")
    console.complaints.clear()  # the refusal is a 4xx


def extend(console: Console, page: Page) -> None:
    console.go(page, "sessions/idle", "idle")
    press(page, "Extend")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("0 of 2 extensions are used")).to_be_visible()
    dialog.get_by_label("Keep it for at least").fill("9h")
    dialog.get_by_role("button", name="Extend", exact=True).click()
    expect(error_of(page, "Keep it for at least")).to_contain_text("above 3600")
    dialog.get_by_label("Keep it for at least").fill("30m")
    console.check(page, "extension of a session")
    confirm(page, "Extend")
    assert call(console, "GET", "/v1/sessions/idle/idle")["extensions"] == 1


def press_stop_and_remove(console: Console, page: Page) -> None:
    console.go(page, "sessions/copied", "copied")
    expect(page.get_by_role("button", name="Remove")).to_have_count(0)
    press(page, "Stop")
    confirm(page, "Stop")
    press(page, "Remove")
    confirm(page, "Remove")
    expect(page.get_by_role("heading", name="Sessions", exact=True)).to_be_visible()
    assert not exists(console, "/v1/sessions/copied")


def outage(console: Console, page: Page) -> None:
    """The form keeps its text while the manager is away, and what is sent twice is made once."""
    console.go(page, "new-session", "New session")
    field(page, "Name").fill("patient")
    page.get_by_label("Command").fill("sleep 60")
    part = opened(page, "Time limits and retries")
    part.get_by_label("Earliest start").fill("2099-01-01T00:00:00Z")
    mode(page, "YAML")
    editor(page).fill(editor(page).input_value() + "# my note\n")
    text = editor(page).input_value()
    ask("stop")
    press(page, "Create")
    expect(page.get_by_role("alert").filter(has_text="has not answered")).to_be_visible()
    expect(editor(page)).to_have_value(text)
    page.screenshot(path=console.pictures / "outage.png", full_page=True)
    ask("start")
    expect(page.locator(".liveness")).to_contain_text("Live")
    expect(editor(page)).to_have_value(text)
    press(page, "Create")
    expect(page.get_by_role("heading", name="patient", exact=True)).to_be_visible()
    found = call(console, "GET", "/v1/sessions?name=patient")["items"]
    assert len(found) == 1, found
    console.complaints.clear()  # requests that were not answered
