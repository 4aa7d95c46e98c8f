"""``why`` and what it shows."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from rest_manager import RestManager

from conftest import Run
from fairlead.common.outlook import Condition, WhyView
from fairlead.common.status import Status

AT = datetime(2026, 1, 1, 14, 20, tzinfo=UTC)
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
    basis="room is reserved for it",
)


def test_why_shows_every_part(manager: RestManager, fairlead: Run) -> None:
    manager.refuse["GET", "/v1/sessions/train/why"] = (200, VIEW)
    result = fairlead("why", "train")
    assert result.exit_code == 0, result.stderr
    for part in (
        "no room now",
        "quotas: user ann: 2 concurrent sessions of 2",
        "needs 4 cuda.device; best agent gpu-03 has 2 free",
        "2 of 12 that wait for room",
        "train-7",
        "2026-01-01 14:20:00 UTC",
        "room is reserved for it",
    ):
        assert part in result.stdout
    (line,) = (line for line in result.stdout.splitlines() if "concurrent" in line)
    assert line.startswith("NOT MET")


def test_why_as_json_is_what_the_manager_said(manager: RestManager, fairlead: Run) -> None:
    manager.refuse["GET", "/v1/sessions/train/why"] = (200, VIEW)
    assert WhyView.model_validate(json.loads(fairlead("why", "train", "-o", "json").stdout)) == VIEW


def test_why_of_a_name_that_is_not_there(fairlead: Run) -> None:
    result = fairlead("why", "nobody")
    assert result.exit_code != 0
