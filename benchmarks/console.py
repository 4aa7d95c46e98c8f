"""Benchmark of the web console: first views and interactions in Chromium, and the lists behind them.

    python benchmarks/console.py URL KEY_FILE [--runs 5]

Measures a platform that is running, such as one with 200 simulated agents with 8 GPUs each, 1,000 live and
100,000 past sessions. Needs playwright (in .venv-browser) and Debian's Chromium.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import urllib.request
from pathlib import Path
from typing import Any

CHROMIUM = "/usr/bin/chromium"
PAGES = {
    "overview": "", "group": "groups/default", "agents": "agents", "sessions": "sessions",
    "endpoints": "endpoints", "users": "users", "keys": "keys", "quotas": "quotas",
}  # fmt: skip
LISTS = (
    "/v1/overview", "/v1/occupancy?limit=50", "/v1/agents", "/v1/groups", "/v1/sessions?limit=50",
    "/v1/sessions?limit=50&status=PENDING", "/v1/endpoints?limit=50",
)  # fmt: skip
FIRST_VIEW_MS, INTERACTION_MS, LIST_P95_MS = 1000, 100, 50
# From the click to the second frame after it: the dialog is on the screen.
CLICK = """async (name) => {
  const button = [...document.querySelectorAll('button')].find((one) => one.textContent.trim() === name);
  const start = performance.now();
  button.click();
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - start;
}"""


def p95(values: list[float]) -> float:
    return sorted(values)[max(0, round(0.95 * len(values)) - 1)]


def lists(url: str, key: str, calls: int) -> dict[str, float]:
    """95th percentile of each list in milliseconds, one call at a time."""
    found = {}
    for path in LISTS:
        took = []
        for _ in range(calls + 2):
            request = urllib.request.Request(url + path, headers={"Authorization": f"Bearer {key}"})
            start = time.perf_counter()
            with urllib.request.urlopen(request) as answer:
                answer.read()
            took.append((time.perf_counter() - start) * 1000)
        found[path] = p95(took[2:])
    return found


def views(url: str, key: str, runs: int) -> tuple[dict[str, float], dict[str, float]]:
    """Median first view of each page with a warm cache, and median interactions, in milliseconds."""
    from playwright.sync_api import expect, sync_playwright

    first: dict[str, list[float]] = {name: [] for name in PAGES}
    clicks: dict[str, list[float]] = {"open a dialog": []}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page: Any = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
        page.goto(f"{url}/console/")
        page.locator("input[type=password]").fill(key)
        page.get_by_role("button", name="Sign in", exact=True).click()
        page.get_by_role("heading", name="Overview", level=1).wait_for()
        for number in range(runs + 1):
            for name, path in PAGES.items():
                start = time.perf_counter()
                page.goto(f"{url}/console/{path}", wait_until="commit")
                page.locator("h1").wait_for()
                page.locator("section").first.wait_for()
                expect(page.locator("[aria-busy=true]")).to_have_count(0)
                if number:
                    first[name].append((time.perf_counter() - start) * 1000)
            page.goto(f"{url}/console/groups")
            page.get_by_role("button", name="New resource group").wait_for()
            page.wait_for_timeout(500)
            took = page.evaluate(CLICK, "New resource group")
            page.keyboard.press("Escape")
            if number:
                clicks["open a dialog"].append(took)
        browser.close()
    return (
        {name: statistics.median(took) for name, took in first.items()},
        {name: statistics.median(took) for name, took in clicks.items() if took},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("url")
    parser.add_argument("key_file", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    key = given.key_file.read_text().strip()
    first, clicks = views(given.url.rstrip("/"), key, given.runs)
    took = lists(given.url.rstrip("/"), key, 20 * given.runs)
    for title, found, goal in (
        ("first view, median", first, FIRST_VIEW_MS),
        ("interaction, median", clicks, INTERACTION_MS),
        ("list, p95", took, LIST_P95_MS),
    ):
        for name, milliseconds in found.items():
            verdict = "" if milliseconds < goal else f"  above {goal} ms"
            print(f"{title:20} {name:40} {milliseconds:8.0f} ms{verdict}")
    print(json.dumps({"first_view_ms": first, "interaction_ms": clicks, "list_p95_ms": took}))


if __name__ == "__main__":
    main()
