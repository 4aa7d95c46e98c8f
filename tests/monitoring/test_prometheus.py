"""A real Prometheus reads a real platform: its rules are valid, and every query of the dashboards
has an answer."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from moorage.common.model.spec import SessionSpec
from moorage.common.views.endpoints import EndpointView
from moorage.common.views.keys import KeySpec
from tests.addresses import free_port
from tests.e2e.harness import Platform, kernels_below, until
from tests.e2e.test_crashes import SLOW

from .generator import FOLDER, dashboards

pytestmark = [pytest.mark.monitoring, pytest.mark.timeout(180)]
# Panels for data that this platform lacks: faults, and readings that simulated devices do not
# provide.
EMPTY = {
    "Answered with 5xx",
    "Busy",
    "Devices kept busy",
    "Failed attempts at replicas",
    "Faults",
    "Held for a replica",
    "Memory in use",
    "Power",
    "Temperature",
}


# The panels that operators look at first, and from how many of the three processes' jobs they get
# data here.
WATCHED = {
    "moorage_manager_leader": 1,
    "moorage_session_wait_seconds_count": 1,
    "moorage_oldest_pending_seconds": 1,
    "moorage_slots_allocated": 1,
    "moorage_slots_offered": 1,
    "moorage_slots_unhealthy": 1,
    "moorage_unreadable_rows": 0,  # none has been stored
    "moorage_http_request_duration_seconds_bucket": 1,
    "moorage_endpoint_replica_running_requests": 1,
    "moorage_endpoint_replica_waiting_requests": 1,
    "moorage_build_info": 3,
    "process_cpu_seconds_total": 3,
    "process_resident_memory_bytes": 3,
    "process_open_fds": 3,
    "process_max_fds": 3,
}


def promtool(*arguments: str) -> None:
    done = subprocess.run(
        ["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_and_configuration_are_valid() -> None:
    promtool("check", "rules", "alerts.yaml")
    promtool("test", "rules", "alerts_test.yaml")
    promtool("check", "config", "--syntax-only", "prometheus.yml")


@pytest.mark.parametrize("metric", WATCHED)
def test_what_is_watched_has_a_panel_or_an_alert(metric: str) -> None:
    name = re.compile(
        rf"\b{metric.removesuffix('_bucket').removesuffix('_count')}(_bucket|_count)?\b"
    )
    rules = (FOLDER / "alerts.yaml").read_text()
    assert any(
        name.search(text) for text in (rules, *(query for _, _, query in dashboards.queries()))
    )


class Prometheus:
    """``targets``: addresses by job in the configuration in deploy/. ``key``: a file with a key."""

    def __init__(self, folder: Path, targets: dict[str, str], key: Path) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{free_port()}"
        config: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
        assert {job["job_name"] for job in config["scrape_configs"]} == targets.keys()
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(FOLDER / "alerts.yaml")]
        for job in config["scrape_configs"]:
            job["static_configs"] = [{"targets": [targets[job["job_name"]]]}]
            if "authorization" in job:
                job["authorization"]["credentials_file"] = str(key)

        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "prometheus.out").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus", f"--config.file={self.folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self.folder / 'tsdb'}",
                    f"--web.listen-address={self.url.removeprefix('http://')}",
                ],
                stdout=log, stderr=log,
            )  # fmt: skip

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an instant query. Raises ``AssertionError`` if it is not valid."""
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"{self.url}/api/v1/query", params={"query": expression}) as response,
        ):
            answer = await response.json()
        assert answer["status"] == "success", (expression, answer)
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result


@pytest_asyncio.fixture
async def platform(home: Path) -> AsyncIterator[Platform]:
    running = Platform(home)
    metrics = f"127.0.0.1:{free_port()}"
    running.env["MOORAGE_AGENT__METRICS_LISTEN"] = metrics
    running.env["MOORAGE_AGENT__INVENTORY"] = "fake:2xH100"
    running.env["MOORAGE_AGENT__STATS_INTERVAL_S"] = "1"
    running.start("up")
    yield running
    running.close()
    assert kernels_below(home) == {}


@pytest.fixture
def folder(platform: Platform) -> Path:
    folder = platform.home / "prometheus"
    folder.mkdir()
    return folder


async def ready(platform: Platform) -> EndpointView | None:
    async with platform.client() as client:
        view = await client.endpoints.get(SLOW.name)
        return view if view.ready == 1 else None


async def ask(platform: Platform) -> None:
    messages = [{"role": "user", "content": "hello"}]
    body = {"model": SLOW.name, "max_tokens": 3, "stream": True, "messages": messages}
    async with (
        aiohttp.ClientSession(headers=platform.auth) as http,
        http.post(f"{platform.openai_url}/chat/completions", json=body) as answer,
    ):
        assert answer.status == 200, await answer.text()
        await answer.read()


def substituted(expression: str) -> str:
    for name in ("resource_group", "model", "instance"):
        expression = expression.replace(f"${name}", ".*")
    return expression.replace("$__rate_interval", "30s")


@pytest.mark.smoke
async def test_every_query_of_a_dashboard_has_an_answer(platform: Platform, folder: Path) -> None:
    await platform.wait_until_ready()
    key = folder / "key"
    async with platform.client() as client:
        created = await client.keys.create(KeySpec(name="prometheus", role="auditor"))
        key.write_text(created.secret)
        await client.endpoints.create(SLOW)
        await client.sessions.create(
            SessionSpec(name="gpu", command=["sleep", "600"], resources={"cuda.device": 1})
        )
        await client.sessions.create(
            SessionSpec(name="no", command=["true"], resources={"cuda.device": 64})
        )

    await until("the model is ready", lambda: ready(platform))
    api = platform.url.removeprefix("http://")
    internal = platform.internal_url.removeprefix("http://")
    prometheus = Prometheus(
        folder,
        {
            "moorage-manager": api,
            "moorage-endpoints": api,
            "moorage-proxy": internal,
            "moorage-agent": platform.env["MOORAGE_AGENT__METRICS_LISTEN"],
        },
        key,
    )
    prometheus.start()

    try:

        async def unanswered() -> set[str]:
            await ask(platform)
            return {
                f"{dashboard}: {title}: {expression}"
                for dashboard, title, expression in dashboards.queries()
                if title not in EMPTY and not await prometheus.query(substituted(expression))
            }

        async def is_up() -> bool:
            try:
                return len(await prometheus.query('up{job=~"moorage-.*"} == 1')) == 4
            except aiohttp.ClientError:
                return False

        await until("all targets are read", is_up)
        missing: set[str] = set()
        async with asyncio.timeout(60):
            while missing := await unanswered():
                await asyncio.sleep(1)

        await check_watched(prometheus)
        for _, title, expression in dashboards.queries():
            if title in EMPTY:
                await prometheus.query(substituted(expression))

        firing = await prometheus.query('ALERTS{alertstate="firing"}')
        assert not firing
    except TimeoutError:
        pytest.fail("no answer to:\n" + "\n".join(sorted(missing)))
    finally:
        prometheus.stop()
        async with platform.client() as client:
            await client.endpoints.delete(SLOW.name)
            await client.sessions.stop("gpu")

        await until("no kernel is left", lambda: no_kernel(platform))


async def check_watched(prometheus: Prometheus) -> None:
    for metric, jobs in WATCHED.items():
        found = await prometheus.query(f"count by (job) ({metric})")
        assert len(found) == jobs, (metric, found)


async def no_kernel(platform: Platform) -> bool:
    return not kernels_below(platform.home)
