"""Forms of endpoints, for ``drive_forms.py``."""

from urllib.parse import quote

from console_page import Console, confirm
from form_page import call, editor, error_of, exists, field, look, mode, opened, press
from playwright.sync_api import Page, expect


def endpoints(console: Console, page: Page) -> None:
    create(console, page)
    change(console, page)
    conflict(console, page)
    roll_back(console, page)
    again(console, page)


def create(console: Console, page: Page) -> None:
    """Everything that the form has; the manager's error is shown at its field."""
    console.go(page, "new-endpoint", "New endpoint")
    press(page, "Create")
    expect(error_of(page, "Name")).to_contain_text("is required")
    expect(field(page, "Name")).to_be_focused()
    field(page, "Name").fill("lm")
    field(page, "Model").fill("tiny")
    field(page, "Replicas").fill("2")

    part = opened(page, "Autoscaling")
    part.get_by_label("Change the number of replicas with the load").check()
    part.get_by_label("Minimum replicas").fill("3")
    part.get_by_label("Maximum replicas").fill("2")
    press(page, "Create")
    expect(page.get_by_role("alert")).to_contain_text("greater than `max`")
    part.get_by_label("Minimum replicas").fill("1")
    part.get_by_label("Maximum replicas").fill("4")
    part.get_by_label("Target running requests per replica").fill("6")
    part.get_by_label("Delay before a decrease").fill("1h")

    part = opened(page, "Rollout")
    part.get_by_label("Canary share in percent").fill("120")
    press(page, "Create")
    expect(error_of(page, "Canary share in percent")).to_contain_text("less than or equal to 99")
    part.get_by_label("Canary share in percent").fill("20")

    part = opened(page, "Routing and fallbacks")
    part.get_by_role("button", name="Add a fallback").click()
    part.get_by_label("Model").fill("other")
    part.get_by_role("button", name="Add a fallback").click()
    press(page, "Create")
    expect(part.get_by_label("Model").nth(1)).to_have_attribute("aria-invalid", "true")
    part.get_by_role("button", name="Remove Fallbacks 2").click()
    part.get_by_label("Affinity").select_option("prefix")

    part = opened(page, "Adapters")
    part.get_by_role("button", name="Add an adapter").click()
    part.get_by_label("Name").fill("sql")
    part.get_by_label("Path or hub id").fill("/models/sql")
    part = opened(page, "Limits")
    part.get_by_label("Requests per minute").fill("600")
    assert not exists(console, "/v1/endpoints/lm")
    press(page, "Dry run")
    expect(page.locator(".why-text")).to_be_visible()
    look(console, page, "new-endpoint")
    press(page, "Create")
    expect(page.get_by_role("heading", name="lm", exact=True)).to_be_visible()
    spec = call(console, "GET", "/v1/endpoints/lm")["spec"]
    scale = spec["autoscale"]
    assert (scale["min"], scale["max"], scale["running"]) == (1, 4, 6), scale
    assert scale["down_delay_s"] == 3600, scale
    assert spec["rollout"]["canary"] == 20, spec
    assert [one["model"] for one in spec["routing"]["fallbacks"]] == ["other"], spec
    assert spec["routing"]["affinity"] == "prefix", spec
    assert spec["adapters"] == [{"name": "sql", "source": "/models/sql"}], spec
    assert spec["limits"]["requests_per_minute"] == 600, spec
    console.complaints.clear()  # the refusals are 4xx


def change(console: Console, page: Page) -> None:
    """Only what was changed is sent, from the form and from the text."""
    call(console, "PATCH", "/v1/endpoints/tiny", {"env": {"API_KEY": "hidden", "ROUND": "1"}})
    before = call(console, "GET", "/v1/endpoints/tiny")["spec"]
    console.go(page, "endpoints/tiny", "tiny")
    page.get_by_role("link", name="Change and roll out").click()
    expect(page.get_by_role("heading", name="Change tiny", exact=True)).to_be_visible()
    part = opened(page, "Limits")
    part.get_by_label("Concurrent requests").fill("-1")
    press(page, "Roll out")
    expect(error_of(page, "Concurrent requests")).to_contain_text("greater than or equal to 0")
    part.get_by_label("Concurrent requests").fill("32")
    part = opened(page, "Autoscaling")
    part.get_by_label("Change the number of replicas with the load").check()
    part.get_by_label("Maximum replicas").fill("3")
    part = opened(page, "Labels and agents")
    part.get_by_role("button", name="Add a label").click()
    part.get_by_label("Name").fill("stage")
    part.get_by_label("Value").fill("prod")
    press(page, "Dry run")
    expect(page.locator(".why-text")).to_be_visible()
    look(console, page, "change-endpoint")
    press(page, "Roll out")
    expect(page.get_by_role("heading", name="tiny", exact=True)).to_be_visible()
    found = call(console, "GET", "/v1/endpoints/tiny")
    spec = found["spec"]
    assert spec["limits"]["concurrent_requests"] == 32, spec
    assert (spec["autoscale"]["max"], found["user_labels"]) == (3, {"stage": "prod"}), found
    assert (spec["env"], spec["model"]) == (before["env"], before["model"]), spec

    page.get_by_role("link", name="Change and roll out").click()
    mode(page, "YAML")
    text = editor(page).input_value()
    assert "concurrent_requests: 32" in text, text
    changed = text.replace("concurrent_requests: 32", "requests_per_minute: 60")
    editor(page).fill(changed.replace('ROUND: "1"', 'ROUND: "2"'))
    press(page, "Roll out")
    expect(page.get_by_role("heading", name="tiny", exact=True)).to_be_visible()
    spec = call(console, "GET", "/v1/endpoints/tiny")["spec"]
    limits = spec["limits"]
    assert (limits["concurrent_requests"], limits["requests_per_minute"]) == (None, 60), spec
    assert spec["env"]["ROUND"] == "2", spec
    console.complaints.clear()  # the refusal is a 4xx


def conflict(console: Console, page: Page) -> None:
    """Another user changes the endpoint while the page is open."""
    console.go(page, "endpoints/tiny/change", "Change tiny")
    page.get_by_label("Priority").fill("20")
    call(console, "PATCH", "/v1/endpoints/tiny", {"limits": {"tokens_per_minute": 5}})
    press(page, "Roll out")
    said = page.get_by_role("alert").filter(has_text="Nothing was saved")
    expect(said.get_by_role("row").filter(has_text="limits")).to_contain_text("5")
    look(console, page, "conflict-endpoint")
    said.get_by_role("button", name="Use the current values").click()
    expect(page.get_by_label("Tokens per minute")).to_have_value("5")
    expect(page.get_by_label("Priority")).to_have_value("")
    page.get_by_label("Priority").fill("20")
    press(page, "Roll out")
    expect(page.get_by_role("heading", name="tiny", exact=True)).to_be_visible()
    spec = call(console, "GET", "/v1/endpoints/tiny")["spec"]
    assert (spec["priority"], spec["limits"]["tokens_per_minute"]) == (20, 5), spec
    console.complaints.clear()  # the refusal is 412


def roll_back(console: Console, page: Page) -> None:
    """A canary is ended by returning to the revision before it, once all replicas had that one."""
    rolled_out(console, page, "complete")
    call(
        console,
        "PATCH",
        "/v1/endpoints/tiny",
        {"rollout": {"canary": 30}, "env": {"ROUND": "3"}},
    )
    rolled_out(console, page, "canary")
    console.go(page, "endpoints/tiny", "tiny")
    press(page, "Roll back")
    console.check(page, "roll back")
    confirm(page, "Roll back")
    expect(page.get_by_role("button", name="Roll back")).to_have_count(0)
    assert call(console, "GET", "/v1/endpoints/tiny")["spec"]["env"]["ROUND"] == "2"


def rolled_out(console: Console, page: Page, state: str) -> None:
    for _ in range(300):
        found = call(console, "GET", "/v1/endpoints/tiny")["rollout"]
        if found["state"] == state:
            return
        page.wait_for_timeout(200)

    raise AssertionError(f"the rollout is not {state}, but {found}")


def catalog(console: Console, page: Page) -> None:
    """A model that fits is served with what it needs. One that does not fit says why."""
    model = "Qwen/Qwen3-0.6B"
    fit = call(console, "GET", f"/v1/catalog/{model}")
    listed = [one["id"] for one in call(console, "GET", "/v1/catalog")["items"]]
    console.go(page, "endpoints", "Endpoints")
    page.get_by_role("link", name="Choose a model").click()
    expect(page.get_by_role("heading", name="Model catalogue", exact=True)).to_be_visible()
    expect(page.locator(".table-foot")).to_contain_text(f"{len(listed)} rows")
    look(console, page, "catalog")
    page.get_by_label("Search by name").fill("no-such-model")
    expect(page.get_by_text("Nothing matches")).to_be_visible()
    page.get_by_label("Search by name").fill(model)
    page.get_by_role("button", name=model, exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("KV cache per token")).to_be_visible()
    for node in fit["nodes"]:
        row = dialog.get_by_role("row").filter(has_text=node["agent_id"])
        expect(row).to_contain_text("yes" if node["fits"] else "no")

    look(console, page, "catalog-model")
    dialog.get_by_role("button", name="Deploy this model").click()
    expect(page.get_by_role("heading", name="New endpoint", exact=True)).to_be_visible()
    expect(field(page, "Model")).to_have_value(model)
    look(console, page, "new-endpoint-of-model")
    field(page, "Name").fill("of-catalog")
    press(page, "Create")
    expect(page.get_by_role("heading", name="of-catalog", exact=True)).to_be_visible()
    spec = call(console, "GET", "/v1/endpoints/of-catalog")["spec"]
    assert fit["spec"] is not None, fit
    assert (spec["model"], spec["engine"]) == (model, "vllm"), spec
    assert spec["args"] == fit["spec"]["args"], (spec, fit)
    assert spec["resources"].keys() == fit["spec"]["resources"].keys(), (spec, fit)
    call(console, "DELETE", "/v1/endpoints/of-catalog")

    call(console, "POST", "/v1/groups", {"name": "empty"})
    console.go(page, f"new-endpoint?model={quote(listed[-1], safe='')}&group=empty", "New endpoint")
    expect(page.get_by_text("no agent of resource group 'empty'")).to_be_visible()
    expect(field(page, "Model")).to_have_value(listed[-1])
    page.goto(f"{console.url}/console/new-endpoint?model=no-such-model")
    expect(page.get_by_role("alert")).to_contain_text("no model 'no-such-model'")
    console.complaints.clear()  # the refusal is a 404


def again(console: Console, page: Page) -> None:
    console.go(page, "endpoints/lm", "lm")
    page.get_by_role("link", name="Start another like this").click()
    expect(page.get_by_role("heading", name="New endpoint", exact=True)).to_be_visible()
    expect(field(page, "Model")).to_have_value("tiny")
    field(page, "Name").fill("lm-2")
    press(page, "Create")
    expect(page.get_by_role("heading", name="lm-2", exact=True)).to_be_visible()
    first, second = (
        call(console, "GET", f"/v1/endpoints/{name}")["spec"] for name in ("lm", "lm-2")
    )
    assert {**first, "name": ""} == {**second, "name": ""}, (first, second)
    call(console, "DELETE", "/v1/endpoints/lm-2")  # other parts need its GPUs
