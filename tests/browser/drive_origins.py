"""Uses the OpenAI API from pages: ``python drive_origins.py ADDRESS KEY PAGE...`` prints what each
page could read, as JSON."""

import json
import sys

from console_page import CHROMIUM, LIMIT
from playwright.sync_api import sync_playwright

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    seen = []
    for url in sys.argv[3:]:
        page = browser.new_page()
        page.set_default_timeout(LIMIT)
        page.goto(url)
        seen.append(page.evaluate("given => use(...given)", sys.argv[1:3]))
        page.close()

    print(json.dumps(seen))
    browser.close()
