"""Fills the forms and editors of the web console: ``python drive_forms.py URL KEY PICTURES``.

Sessions, endpoints, templates and pipelines are created and changed in the form, as YAML and as
JSON, with good and bad input. Each result is read from the REST API. Prints a line for each moment
at which the test has to act, waits for a line from it, and prints what it has seen as JSON at the
end.
"""

import json
import sys
from pathlib import Path

from console_page import CHROMIUM, Console
from forms_of_cron_jobs import cron_jobs
from forms_of_endpoints import catalog, endpoints
from forms_of_rollouts import rollouts
from forms_of_sessions import outage, sessions
from forms_of_templates import pipelines, templates
from playwright.sync_api import sync_playwright

PARTS = {
    "sessions": sessions,
    "templates": templates,
    "pipelines": pipelines,
    "cron-jobs": cron_jobs,
    "endpoints": endpoints,
    "rollouts": rollouts,
    "catalog": catalog,
    "outage": outage,
}


def main(url: str, key: str, pictures: Path, *parts: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        console = Console(browser, url, key, pictures)
        page = console.open()
        try:
            console.sign_in(page)
            for part in parts or PARTS:
                PARTS[part](console, page)
        except Exception:
            page.screenshot(path=pictures / "failed.png", full_page=True)
            raise

        browser.close()

    print(json.dumps({"complaints": console.complaints, "axe": console.axe}))


main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
