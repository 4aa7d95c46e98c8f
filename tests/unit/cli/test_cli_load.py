"""``moorage load`` and ``moorage agents load``, and the current load in ``describe``."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from fake_manager import FakeManager
from invoke import Run

from moorage.cli.load_lines import current_load
from moorage.common.model.spec import EndpointSpec, Probe
from moorage.common.views.load import EndpointLoad

AT = 1_795_824_000  # 2026-11-28 00:00 UTC
TRAFFIC: dict[str, Any] = {
    "at": [AT, AT + 60],
    "covered_s": [60.0, 0.0],
    "requests": [120, 0],
    "errors": [3, 0],
    "tokens_in": [6000, 0],
    "tokens_out": [600, 0],
    "first_token_ms": [250.4, None],
    "first_token_peak_ms": [1300, None],
    "running": [4.0, 4.0],
    "waiting": [0.5, 0.0],
    "held": [0.0, 0.0],
    "wanted": [2.0, 2.0],
    "ready": [1.5, 2.0],
}
DEVICE = {"gpu": [900.0, None], "memory": [2.0**30, 0.0], "temperature": [70.0, None]}


def test_load_of_an_endpoint(manager: FakeManager, moorage: Run) -> None:
    manager.add_endpoint(EndpointSpec(name="m", engine="custom", command=["x"], probe=Probe()))
    assert "no samples" in moorage("load", "m").stderr
    manager.store.load_history.endpoints["m"] = TRAFFIC
    title, first, second = moorage("load", "m", "--from", "6h").stdout.splitlines()
    assert title.split()[:3] == ["TIME", "REQ/S", "ERRORS"]
    assert first.split() == [
        *("2026-11-28", "00:00", "2", "3", "250", "ms", "100", "10", "4.0", "0.5", "0.0", "1.5/2"),
    ]
    assert second.split()[2:7] == ["-", "0", "-", "-", "-"], "nothing was counted"
    shown = json.loads(moorage("load", "m", "-o", "json").stdout)["load"]
    assert shown["requests"] == [120, 0]


def test_a_period_that_ends_before_it_begins_is_refused(manager: FakeManager, moorage: Run) -> None:
    result = moorage("load", "m", "--from", "1h", "--to", "2h")
    assert (result.exit_code, "before `to`" in result.stderr) == (2, True), result.stderr


def test_load_of_an_agent(manager: FakeManager, moorage: Run) -> None:
    manager.store.load_history.agents["node-1"] = {
        "at": [AT, AT + 60],
        "cpu": [1500.0, 0.0],
        "memory": [2.0**30, 2.0**30],
        "devices": [
            {"device_id": "a", "at": [AT, AT + 60], "power": [300_000.0, None], **DEVICE},
            {"device_id": "b", "at": [AT], "gpu": [500.0], "memory": [2.0**30]}
            | {"temperature": [60.0], "power": [100_000.0]},
        ],
    }
    title, first, second = moorage("agents", "load", "node-1").stdout.splitlines()
    assert title.split()[:3] == ["TIME", "CPU", "MEM"]
    assert first.split()[2:] == ["1.50", "1GiB", "70%", "2GiB", "70", "°C", "400", "W"]
    assert second.split()[2:] == ["0.00", "1GiB", "-", "0B", "-", "-"]


@pytest.mark.parametrize(
    ("seconds_later", "shown"),
    [
        (90, "2 requests/s, 3 errors, first token 250 ms, 10 tokens/s"),
        (1000, ""),
    ],
)
def test_current_load(seconds_later: int, shown: str) -> None:
    until = datetime.fromtimestamp(AT + seconds_later, UTC)
    load = EndpointLoad(name="m", since=until, until=until, step="minute", **TRAFFIC)
    assert current_load(load) == shown


def test_describe_shows_the_current_load(manager: FakeManager, moorage: Run) -> None:
    manager.add_endpoint(EndpointSpec(name="m", engine="custom", command=["x"], probe=Probe()))
    now = int(manager.services.clock.now().timestamp())
    manager.store.load_history.endpoints["m"] = TRAFFIC | {"at": [now - 60, now]}
    assert "2 requests/s, 3 errors" in moorage("describe", "m").stdout
    assert json.loads(moorage("describe", "m", "-o", "json").stdout)["load"]["errors"] == [3, 0]
