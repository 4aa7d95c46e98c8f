"""Forms of templates and pipelines, for ``drive_forms.py``."""

import re

from console_page import Console, confirm
from form_page import call, editor, error_of, exists, field, look, names, press
from playwright.sync_api import Page, expect

TEMPLATE = """description: Trains for some epochs
parameters:
  epochs: {type: integer, min: 1, max: 9, description: How often}
  mode: {choices: [fast, exact], default: fast}
spec:
  command: [sleep, "6{{ epochs }}"]
  starts_at: 2099-01-01T00:00:00Z
  resources: {cpu: 0.1, mem: 16MiB}
"""
PIPELINE = """name: digits
steps:
  - name: load
    spec: {command: ["true"], resources: {cpu: 0.1, mem: 16MiB}}
  - name: part
    array: 0-2
    after: [load]
    spec: {command: ["true"], resources: {cpu: 0.1, mem: 16MiB}}
"""


def templates(console: Console, page: Page) -> None:
    create(console, page)
    start(console, page)
    change(console, page)
    delete(console, page)


def create(console: Console, page: Page) -> None:
    console.go(page, "templates", "Templates")
    expect(page.get_by_text("No templates yet")).to_be_visible()
    page.get_by_role("link", name="New template").click()
    expect(page.get_by_role("heading", name="New template", exact=True)).to_be_visible()
    expect(editor(page)).to_have_value(re.compile("parameters:"))
    field(page, "Name").fill("train")
    editor(page).fill(TEMPLATE.replace("type: integer", "type: integr"))
    press(page, "Create")
    error = page.locator(".editor-errors li").first
    expect(error).to_contain_text("Line 3 parameters.epochs.type: must be one of")
    assert not exists(console, "/v1/templates/train")
    look(console, page, "new-template")
    editor(page).fill(TEMPLATE)
    press(page, "Create")
    expect(page.get_by_role("heading", name="train", exact=True)).to_be_visible()
    made = call(console, "GET", "/v1/templates/train")
    assert made["version"] == 1, made
    assert made["template"]["parameters"]["epochs"]["max"] == 9, made

    console.go(page, "new-template", "New template")
    field(page, "Name").fill("train")
    press(page, "Create")
    expect(error_of(page, "Name")).to_contain_text("There is a template train already")
    assert call(console, "GET", "/v1/templates/train")["version"] == 1
    console.complaints.clear()  # the refusals are 4xx, and a free name is a 404


def start(console: Console, page: Page) -> None:
    """A session with parameters and with a field that differs from the template."""
    console.go(page, "templates/train", "train")
    expect(page.get_by_role("row").filter(has_text="epochs")).to_contain_text("≥ 1, ≤ 9")
    look(console, page, "template")
    page.get_by_role("link", name="Start a session").click()
    expect(page.get_by_role("heading", name="New session", exact=True)).to_be_visible()
    press(page, "Create")
    expect(error_of(page, "epochs")).to_contain_text("'epochs' is missing")
    page.get_by_label("epochs").fill("70")
    press(page, "Dry run")
    expect(error_of(page, "epochs")).to_contain_text("the largest allowed value is 9")
    page.get_by_label("epochs").fill("3")
    page.get_by_label("mode").select_option("exact")
    page.get_by_label("Priority").fill("500")
    press(page, "Create")
    expect(error_of(page, "Priority")).to_contain_text("less than or equal to 100")
    page.get_by_label("Priority").fill("8")
    field(page, "Name").fill("from-template")
    assert not exists(console, "/v1/sessions/from-template")
    press(page, "Dry run")
    expect(page.locator(".why-text")).to_be_visible()
    look(console, page, "from-template")
    press(page, "Create")
    expect(page.get_by_role("heading", name="from-template", exact=True)).to_be_visible()
    made = call(console, "GET", "/v1/sessions/from-template")
    assert (made["template"], made["priority"]) == ("train@1", 8), made
    assert made["spec"]["command"] == ["sleep", "63"], made

    console.go(page, "new-session", "New session")
    page.get_by_label("Start from a template").first.click()
    page.get_by_role("option", name="train").click()
    expect(page.get_by_label("epochs")).to_be_visible()
    console.complaints.clear()  # the refusals are 4xx


def change(console: Console, page: Page) -> None:
    """A new version, while another user saves another one."""
    console.go(page, "templates/train", "train")
    page.get_by_role("link", name="New version").click()
    expect(page.get_by_role("heading", name="New version of train")).to_be_visible()
    expect(editor(page)).to_have_value(re.compile("Trains for some epochs"))
    mine = editor(page).input_value().replace("Trains for some", "Mine for many")
    editor(page).fill(mine)
    theirs = call(console, "GET", "/v1/templates/train")["template"] | {"description": "Theirs"}
    call(console, "PUT", "/v1/templates/train", theirs)
    press(page, "Save")
    said = page.get_by_role("alert").filter(has_text="Nothing was saved")
    expect(said.get_by_role("row").filter(has_text="description")).to_contain_text("Theirs")
    expect(editor(page)).to_have_value(mine)
    look(console, page, "conflict-template")
    said.get_by_role("button", name="Overwrite with mine").click()
    expect(page.get_by_role("heading", name="train", exact=True)).to_be_visible()
    found = call(console, "GET", "/v1/templates/train")
    assert (found["version"], found["template"]["description"]) == (3, "Mine for many epochs"), (
        found
    )
    console.complaints.clear()  # the refusal is 412


def delete(console: Console, page: Page) -> None:
    console.go(page, "templates/train", "train")
    press(page, "Delete")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("3 versions are deleted.")).to_be_visible()
    dialog.get_by_label("Type train to confirm").fill("train")
    confirm(page, "Delete")
    expect(page.get_by_role("heading", name="Templates", exact=True)).to_be_visible()
    assert not exists(console, "/v1/templates/train")
    assert exists(console, "/v1/sessions/from-template")


def pipelines(console: Console, page: Page) -> None:
    console.go(page, "pipelines", "Pipelines")
    page.get_by_role("link", name="New pipeline").click()
    expect(page.get_by_role("heading", name="New pipeline", exact=True)).to_be_visible()
    expect(editor(page)).to_have_value(re.compile("steps:"))
    editor(page).fill(PIPELINE.replace("array: 0-2", "array: 2-0"))
    press(page, "Dry run")
    expect(page.locator(".editor-errors li").first).to_contain_text("Line 6 steps[1].array: array")
    editor(page).fill(PIPELINE.replace("after: [load]", "after: [laod]"))
    press(page, "Submit")
    expect(page.get_by_role("alert").first).to_contain_text("'laod', which is not a step")
    assert "digits" not in names(console, "/v1/pipelines")
    editor(page).fill(PIPELINE)
    press(page, "Dry run")
    expect(page.get_by_text("4 sessions would be created.")).to_be_visible()
    assert "digits" not in names(console, "/v1/pipelines")
    look(console, page, "new-pipeline")
    press(page, "Submit")
    expect(page.get_by_role("heading", name="digits", exact=True)).to_be_visible()
    made = call(console, "GET", "/v1/pipelines/digits")
    assert sum(made["counts"].values()) == 4, made
    console.complaints.clear()  # the refusals are 4xx
