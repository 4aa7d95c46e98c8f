"""Signs in and out in a real Chromium with single sign-on: ``python drive_sign_on.py URL PICTURE``
prints JSON."""

import json
import re
import sys

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

url, picture = sys.argv[1:]
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(
        executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-dev-shm-usage"]
    )
    page = browser.new_page()
    page.set_default_timeout(60_000)
    expect.set_options(timeout=60_000)
    page.goto(f"{url}/console/")
    button = page.get_by_role("link", name="Single sign-on")
    button.wait_for()
    findings = [
        one["id"]
        for one in Axe().run(page).response["violations"]
        if one["impact"] in ("serious", "critical")
    ]
    page.screenshot(path=picture)
    button.click()
    page.locator("input[name=login]").fill("dora")
    page.locator("input[name=password]").fill("x")
    page.locator("button[type=submit]").click()
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    cookies = {one["name"]: one["sameSite"] for one in page.context.cookies(url)}
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(re.compile("/session/end"))
    page.get_by_role("button", name=re.compile("sign me out", re.IGNORECASE)).first.click()
    expect(page.get_by_role("heading", name="Sign in", level=1)).to_be_visible()
    print(json.dumps({"axe": findings, "cookies": cookies, "address": page.url}))
    browser.close()
