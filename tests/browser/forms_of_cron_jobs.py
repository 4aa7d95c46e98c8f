"""Forms of cron jobs and the calendar, for ``drive_forms.py``."""

from console_page import Console, confirm
from form_page import call, error_of, exists, field, look, press
from playwright.sync_api import Page, expect

JOB = "/v1/cron-jobs/report"


def cron_jobs(console: Console, page: Page) -> None:
    create(console, page)
    change(console, page)
    suspend(console, page)
    run_and_delete(console, page)


def create(console: Console, page: Page) -> None:
    console.go(page, "cron-jobs", "Cron jobs")
    expect(page.get_by_text("No cron jobs yet")).to_be_visible()
    page.get_by_role("link", name="New cron job").click()
    expect(page.get_by_role("heading", name="New cron job", exact=True)).to_be_visible()
    field(page, "Name").fill("report")
    page.get_by_label("Cron expression").fill("0 0 30 2 *")
    press(page, "Dry run")
    expect(error_of(page, "Cron expression")).to_contain_text("never comes")
    page.get_by_label("Cron expression").fill("* * *")
    press(page, "Create")
    expect(error_of(page, "Cron expression")).to_contain_text("has 3 fields")
    assert not exists(console, JOB)

    page.get_by_label("Cron expression").fill("30 7 * * MON-FRI")
    page.get_by_label("Time zone").fill("Europe/Prague")
    press(page, "Dry run")
    expect(page.locator(".cron-times li")).to_have_count(5)
    expect(page.locator(".cron-times li").first).to_contain_text("07:30")
    page.get_by_label("Command").fill("true")
    look(console, page, "new-cron-job")
    press(page, "Create")
    expect(page.get_by_role("heading", name="report", exact=True)).to_be_visible()
    made = call(console, "GET", JOB)
    assert made["spec"]["time_zone"] == "Europe/Prague", made
    assert made["spec"]["session"]["command"] == ["/bin/sh", "-c", "true"], made
    console.complaints.clear()  # the refusals are 4xx


def change(console: Console, page: Page) -> None:
    """The times, while another user changes the cron job too."""
    console.go(page, "cron-jobs", "Cron jobs")
    page.get_by_role("link", name="report", exact=True).click()
    press(page, "Change")
    expect(page.get_by_role("heading", name="Change report")).to_be_visible()
    page.get_by_label("Cron expression").fill("@hourly")
    theirs = call(console, "GET", JOB)["spec"] | {"concurrency": "replace"}
    call(console, "PUT", JOB, theirs)
    press(page, "Save")
    said = page.get_by_role("alert").filter(has_text="Nothing was saved")
    expect(said.get_by_role("row").filter(has_text="cron")).to_contain_text("@hourly")
    said.get_by_role("button", name="Overwrite with mine").click()
    expect(page.get_by_role("heading", name="report", exact=True)).to_be_visible()
    assert call(console, "GET", JOB)["spec"]["cron"] == "@hourly"
    console.complaints.clear()  # the refusal is 412


def suspend(console: Console, page: Page) -> None:
    press(page, "Suspend")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert call(console, "GET", JOB)["suspended"]
    console.go(page, "cron-jobs", "Cron jobs")
    expect(page.get_by_role("row").filter(has_text="report")).to_contain_text("Suspended")
    look(console, page, "cron-jobs")
    page.get_by_role("link", name="report", exact=True).click()
    press(page, "Resume")
    expect(page.get_by_role("button", name="Suspend")).to_be_visible()
    assert call(console, "GET", JOB)["next_at"]


def run_and_delete(console: Console, page: Page) -> None:
    press(page, "Run now")
    row = page.get_by_role("row").filter(has_text="by hand")
    expect(row).to_be_visible()
    [run] = call(console, "GET", f"{JOB}/runs")["items"]
    assert run["by_hand"], run
    look(console, page, "cron-job")

    console.go(page, "calendar", "Calendar")
    expect(page.locator(".calendar-entry[data-kind=run]").first).to_contain_text("report")
    expect(page.locator(".calendar-entry[data-kind=coming]").first).to_contain_text("report")
    look(console, page, "calendar")
    page.get_by_text("Month", exact=True).click()
    expect(page.locator(".calendar[data-view=month]")).to_be_visible()
    look(console, page, "calendar-month")
    press(page, "Next")
    expect(page.locator(".calendar-entry[data-kind=coming]").first).to_be_visible()

    console.go(page, "cron-jobs/report", "report")
    press(page, "Delete")
    confirm(page, "Delete")
    expect(page.get_by_role("heading", name="Cron jobs", exact=True)).to_be_visible()
    assert not exists(console, JOB)
