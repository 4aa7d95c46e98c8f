"""Benchmark of the web console: first views and interactions in Chromium, and the lists behind
them.

    python benchmarks/console.py [--runs 5] [--agents 200] [--live 1000] [--past 100000]

Starts a platform with simulated agents of 8 GPUs each, fills it with live and past sessions and a
year of history, and stops it at the end. Needs Debian's Chromium, and playwright in .venv-browser
(`make test-browser` installs both). The part in the browser runs there: `console.py --views URL`,
key on stdin.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cluster import Cluster

ROOT = Path(__file__).resolve().parents[1]
BROWSER = Path(os.environ.get("MOORAGE_BROWSER_VENV", ROOT / ".venv-browser")) / "bin" / "python"
CHROMIUM = "/usr/bin/chromium"
PAGES = {
    "overview": "", "group": "groups/default", "agents": "agents", "sessions": "sessions",
    "endpoints": "endpoints", "users": "users", "keys": "keys", "quotas": "quotas",
}  # fmt: skip
LISTS = (
    "/v1/overview", "/v1/occupancy?limit=50", "/v1/agents", "/v1/groups", "/v1/sessions?limit=50",
    "/v1/sessions?limit=50&status=PENDING", "/v1/endpoints?limit=50", "/v1/occupancy/history",
    "/v1/audit?limit=50", "/v1/users", "/v1/keys", "/v1/quotas",
)  # fmt: skip
FIRST_VIEW_MS = 1000
INTERACTION_MS = 100
LIST_P95_MS = 50
CONSOLES = 100
WATCHED_S = 20.0
# Other work on the machine only adds to a measurement, so the least of a few counts.
ROUNDS = 3
CONSOLES_CORE = 0.15
# What a console shows on its first page, and how often it reads that again while something changes,
# as in console/src/api/live.ts.
SHOWN = ("/v1/overview", "/v1/sessions?status=PENDING&limit=20")
SPACING_S = 5.0
CHANGE_S = 1.8
# First content on a slow link: 100 kB/s and 400 ms.
SLOW = {
    "offline": False, "latency": 400, "downloadThroughput": 100_000, "uploadThroughput": 100_000,
}  # fmt: skip
SLOW_FIRST_MS = 3000
HISTORY = """
WITH times AS (
    SELECT 60 AS seconds, now() - n * interval '1 minute' AS at FROM generate_series(1, 2880) n UNION ALL
    SELECT 3600, now() - n * interval '1 hour' FROM generate_series(1, 2160) n UNION ALL
    SELECT 86400, now() - n * interval '1 day' FROM generate_series(1, 365) n
), queues AS (
    INSERT INTO queue_spans SELECT 'default', seconds, date_bin('1 s', at, 'epoch'), 3, 5, 9, 900 FROM times
    ON CONFLICT DO NOTHING
)
INSERT INTO occupancy_spans
SELECT 'default', seconds, date_bin('1 s', at, 'epoch'), 3, slot, 1600000, 900000, 1000000
FROM times, unnest(ARRAY['cpu', 'mem', 'cuda.device']) slot
ON CONFLICT DO NOTHING
"""
# From the click to the second frame after it: the dialog is on the screen.
CLICK = """async (name) => {
  const button = [...document.querySelectorAll('button')].find((one) => one.textContent.trim() === name);
  const start = performance.now();
  button.click();
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - start;
}"""

FIRST_CONTENT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
# Asked at each frame, and the time is the page's own.
HEADING = "() => document.querySelector('h1') && performance.now()"
WHOLE = """() =>
  document.querySelector('section') &&
  !document.querySelector('[aria-busy=true], .chart-space') &&
  performance.now()
"""
# Loaded without a cache.
COLD = {"overview": "", "group": "groups/default"}


def p95(values: list[float]) -> float:
    return sorted(values)[max(0, round(0.95 * len(values)) - 1)]


async def lists(cluster: Cluster, calls: int) -> dict[str, float]:
    """95th percentile of each list in milliseconds, one call at a time."""
    caller = cluster.caller()
    found = {}
    for path in LISTS:
        took = []
        for _ in range(calls + 2):
            start = time.perf_counter()
            status, body = await caller.call("GET", path)
            took.append((time.perf_counter() - start) * 1000)
            assert status == 200, body

        found[path] = p95(took[2:])

    return found


async def fill(cluster: Cluster, live: int, past: int) -> None:
    """Running sessions, some that fit nowhere, many that have ended, and a year of history."""
    import asyncpg

    from bench_full_table import FINISHED

    connection = await asyncpg.connect(cluster.dsn)
    spec = {"command": ["x"], "runtime": "fake", "resources": {"cpu": 1}}
    agent = await connection.fetchval("SELECT min(id) FROM agents")
    await connection.execute(FINISHED.replace("'old'", f"'{agent}'"), past, json.dumps(spec))
    await connection.execute(HISTORY)
    waiting = live // 20
    caller = cluster.caller()
    for number in range(live):
        gpus = 9 if number < waiting else 1
        body = spec | {"name": f"live-{number}", "resources": {"cpu": 1, "cuda.device": gpus}}
        status, answer = await caller.call("POST", "/v1/sessions", json.dumps(body).encode())
        assert status == 201, answer

    running = "SELECT count(*) FROM sessions WHERE status = 'RUNNING'"
    async with asyncio.timeout(300):
        while await connection.fetchval(running) < live - waiting:
            await asyncio.sleep(1)

    await connection.execute("VACUUM ANALYZE")
    await connection.close()


async def consoles(cluster: Cluster) -> float:
    """Additional cores that the manager uses while this many consoles follow its events, and read
    their page again as sessions start and stop."""
    import aiohttp

    async def used() -> float:
        before = cluster.cpu()["manager"]
        await asyncio.sleep(WATCHED_S)
        return (cluster.cpu()["manager"] - before) / WATCHED_S

    async def follow(http: aiohttp.ClientSession, changed: asyncio.Event) -> None:
        async with http.get("/v1/events") as answer:
            async for line in answer.content:
                if line.startswith((b"event: session", b"event: agent")):
                    changed.set()

    async def show(http: aiohttp.ClientSession, changed: asyncio.Event) -> None:
        while True:
            await changed.wait()
            changed.clear()
            for path in SHOWN:
                async with http.get(path) as answer:
                    await answer.read()

            await asyncio.sleep(SPACING_S * random.uniform(0.8, 1.2))

    async def change() -> None:
        caller = cluster.caller()
        spec = json.dumps({"command": ["x"], "runtime": "fake", "resources": {"cpu": 1}}).encode()
        while True:
            _, answer = await caller.call("POST", "/v1/sessions", spec)
            await asyncio.sleep(CHANGE_S)
            await caller.call("POST", f"/v1/sessions/{json.loads(answer)['id']}/stop")
            await asyncio.sleep(CHANGE_S)

    changing = asyncio.ensure_future(change())
    alone = await used()
    headers = {"Authorization": f"Bearer {cluster.key}"}
    async with aiohttp.ClientSession(
        f"http://{cluster.host}:{cluster.port}",
        headers=headers,
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
    ) as http:
        signals = [asyncio.Event() for _ in range(CONSOLES)]
        open_ = [
            asyncio.ensure_future(part(http, one)) for one in signals for part in (follow, show)
        ]
        await asyncio.sleep(5)
        extra = await used() - alone
        for task in (*open_, changing):
            task.cancel()

        await asyncio.gather(*open_, changing, return_exceptions=True)

    return extra


def shown(page: Any) -> tuple[float, float]:
    """Milliseconds since the navigation until the heading is shown, and until everything is."""
    heading = page.wait_for_function(HEADING, timeout=60_000).json_value()
    return heading, page.wait_for_function(WHOLE, timeout=60_000).json_value()


def cold(browser: Any, state: Any, address: str, link: dict[str, Any] | None) -> tuple[float, ...]:
    """Milliseconds until the first content, the heading and the whole of a page that is not cached,
    through such a link."""
    context = browser.new_context(storage_state=state, viewport={"width": 1280, "height": 800})
    page = context.new_page()
    if link is not None:
        session = context.new_cdp_session(page)
        session.send("Network.enable")
        session.send("Network.emulateNetworkConditions", link)

    page.goto(address, wait_until="commit")
    took = shown(page)
    first = page.evaluate(FIRST_CONTENT)
    context.close()

    return first, *took


def views(url: str, key: str, runs: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Milliseconds of each run: first views, with a warm cache and without one, and interactions."""
    from playwright.sync_api import sync_playwright

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
                page.goto(f"{url}/console/{path}", wait_until="commit")
                _, whole = shown(page)
                if number:
                    first[name].append(whole)

            page.goto(f"{url}/console/groups")
            page.get_by_role("button", name="New resource group").wait_for()
            page.wait_for_timeout(500)
            took = page.evaluate(CLICK, "New resource group")
            page.keyboard.press("Escape")
            if number:
                clicks["open a dialog"].append(took)

        state = page.context.storage_state()
        for kind, link in (("not cached", None), ("not cached, slow link", SLOW)):
            for name, path in COLD.items():
                loads = [cold(browser, state, f"{url}/console/{path}", link) for _ in range(runs)]
                for part, took in zip(
                    ("first content", "heading", "whole"), zip(*loads, strict=True), strict=True
                ):
                    first[f"{name}, {kind}: {part}"] = list(took)

        browser.close()

    return first, clicks


async def measure(given: argparse.Namespace) -> None:
    from cluster import start_cluster
    from measuring import machine, machine_line

    found = machine()
    print(machine_line(found), flush=True)
    async with start_cluster(given.agents, "--gpus", "8", "--forever") as cluster:
        await fill(cluster, given.live, given.past)
        took = await lists(cluster, 20 * given.runs)
        cores = min([await consoles(cluster) for _ in range(min(given.runs, ROUNDS))])
        command = [str(BROWSER), __file__, "--views", f"http://{cluster.host}:{cluster.port}"]
        command += ["--runs", str(given.runs)]

        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as browser:
            out, _ = await asyncio.to_thread(browser.communicate, cluster.key)

        if browser.returncode:
            raise SystemExit("the part in the browser failed")

        first, clicks = json.loads(out)

    print(f"load {os.getloadavg()[0]:.1f} at the end")
    for title, runs, goal in (
        ("first view", first, FIRST_VIEW_MS),
        ("interaction", clicks, INTERACTION_MS),
    ):
        for name, values in runs.items():
            limit = SLOW_FIRST_MS if "slow" in name else goal
            least = min(values)
            # Of a page that is not cached, the goal is for what is shown first.
            has_goal = "cached" not in name or name.endswith("first content")
            verdict = f"  above {limit} ms" if has_goal and least >= limit else ""
            middle = f"shortest, median {statistics.median(values):6.0f}"
            print(f"{title:12} {name:44} {least:6.0f} ms {middle}{verdict}")

    for path, milliseconds in took.items():
        verdict = "" if milliseconds < LIST_P95_MS else f"  above {LIST_P95_MS} ms"
        print(f"{'list, p95':12} {path:44} {milliseconds:6.0f} ms{verdict}")

    verdict = "" if cores < CONSOLES_CORE else f"  above {CONSOLES_CORE}"
    print(f"{CONSOLES} consoles: {cores:.3f} cores of the manager{verdict}")
    values = {
        "first_view_ms": first,
        "interaction_ms": clicks,
        "list_p95_ms": took,
        "consoles_cores": cores,
    }
    print(json.dumps({"machine": found, **values}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--live", type=int, default=1000)
    parser.add_argument("--past", type=int, default=100_000)
    parser.add_argument("--views", metavar="URL", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.views:
        print(json.dumps(views(given.views, sys.stdin.read().strip(), given.runs)))
    elif not BROWSER.exists() or not Path(CHROMIUM).exists():
        raise SystemExit(f"{BROWSER} or {CHROMIUM} not found: `make test-browser` installs both")
    else:
        asyncio.run(measure(given))


if __name__ == "__main__":
    main()
