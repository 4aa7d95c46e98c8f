"""``moorage why`` and ``moorage plan``."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

from fake_manager import FakeManager
from invoke import Run

from moorage.common.model.status import Status
from moorage.common.views.pending import (
    Condition,
    KernelPlaceView,
    PlanView,
    StartCalibration,
    WhyView,
)
from moorage.common.views.resources import DeviceView

AT = datetime(2026, 1, day=1, hour=14, minute=20, tzinfo=UTC)
VIEW = WhyView(
    session_id="s1",
    name="train",
    status=Status.PENDING,
    since=AT,
    resource_group="default",
    text="no room now",
    conditions=[
        Condition(kind="time", met=True, text="it may start at any time"),
        Condition(kind="quotas", met=False, text="user ann: 2 concurrent sessions of 2"),
    ],
    refusals=["needs 4 cuda.device; best agent gpu-03 has 2 free"],
    position=2,
    waiting=12,
    blockers=["train-7"],
    expected_start=AT,
    expected_kind="reserved",
    basis="room is reserved for it",
    calibration=StartCalibration(
        resource_group="default", kind="reserved", starts=120, error_p50_s=40, error_p90_s=600
    ),
)


def test_why_shows_every_part(manager: FakeManager, moorage: Run) -> None:
    manager.can("GET", "/v1/sessions/train/why", 200, VIEW)
    result = moorage("why", "train")
    assert result.exit_code == 0, result.stderr

    for part in (
        "no room now",
        "quotas: user ann: 2 concurrent sessions of 2",
        "needs 4 cuda.device; best agent gpu-03 has 2 free",
        "position 2 of 12 waiting for capacity",
        "train-7",
        "2026-01-01 14:20:00 UTC",
        "room is reserved for it",
        "of 120 such estimates, half were off by at most 40s, nine in ten by at most 10m",
    ):
        assert part in result.stdout

    (line,) = (line for line in result.stdout.splitlines() if "concurrent" in line)
    assert line.startswith("NOT MET")


def test_why_json_is_the_answer_of_the_manager(manager: FakeManager, moorage: Run) -> None:
    manager.can("GET", "/v1/sessions/train/why", 200, VIEW)
    assert WhyView.model_validate(json.loads(moorage("why", "train", "-o", "json").stdout)) == VIEW


def test_why_of_an_unknown_session(moorage: Run) -> None:
    result = moorage("why", "nobody")
    assert result.exit_code != 0


PLAN = PlanView(
    fits=True,
    resource_group="default",
    text="there is room on gpu-03",
    places=[
        KernelPlaceView(
            agent_id="gpu-03",
            devices=[DeviceView(slot="cuda.device", device_id="GPU-7", amount=1000)],
        )
    ],
)


def test_plan_prints_the_placement_and_creates_nothing(manager: FakeManager, moorage: Run) -> None:
    manager.can("POST", "/v1/sessions/plan", 200, PLAN)
    result = moorage("plan", "--gpus", "1", "--timeout", "60s", "--after", "train")
    assert result.exit_code == 0, result.stderr
    assert "yes" in result.stdout
    assert "gpu-03  GPU-7" in result.stdout
    assert manager.requests == ["POST /v1/sessions/plan"]
    assert moorage("plan", "-o", "name").stdout == "gpu-03\n"
    assert PlanView.model_validate(json.loads(moorage("plan", "-o", "json").stdout)) == PLAN


def test_plan_takes_the_options_of_run(moorage: Run) -> None:
    def options(verb: str) -> set[str]:
        found = re.findall(
            r"--[a-z][a-z-]*", moorage(verb, "--help").stdout.partition("Options:")[2]
        )
        return set(found)

    assert options("run") - options("plan") == {
        "--strict", "--wait", "--no-wait", "--detach", "--stop-on-interrupt", "--force", "--rm", "--stdin",
        "--array",
    }  # fmt: skip


def test_plan_refuses_what_run_refuses(moorage: Run) -> None:
    result = moorage("plan", "--resources", "gpu")
    assert result.exit_code != 0
    assert result.stderr == moorage("run", "--resources", "gpu", "--", "x").stderr
