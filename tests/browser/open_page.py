"""Opens a page in a real Chromium: ``python open_page.py URL`` prints address, title and cookies as
JSON."""

import json
import sys

from playwright.sync_api import sync_playwright

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
    page = browser.new_page()
    page.goto(sys.argv[1])
    cookies = [
        [cookie["domain"], cookie["path"], cookie["httpOnly"]] for cookie in page.context.cookies()
    ]
    print(json.dumps({"address": page.url, "title": page.title(), "cookies": cookies}))
    browser.close()
