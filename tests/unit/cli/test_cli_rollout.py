"""``moorage rollout``, ``endpoints set``, and scaling options of ``serve``."""

import json
from datetime import UTC, datetime

import pytest
from fake_manager import FakeManager
from invoke import Run

from moorage.common.model.reasons import Reason
from moorage.common.views.endpoints import RolloutView, ScalingDecision
from moorage.common.views.resources import Page


def served(moorage: Run) -> None:
    assert moorage("serve", "org/big", "--name", "big", "--env", "A=1").exit_code == 0


def test_change_history_and_undo(manager: FakeManager, moorage: Run) -> None:
    served(moorage)
    result = moorage(
        "endpoints", "set", "big", "model=org/big2", 'args=["--x","1"]', "env.A=none", "env.B=2"
    )
    assert result.stdout.startswith("big has revision 2")
    spec = manager.endpoints["big"]
    assert (spec.model, spec.args, spec.env) == ("org/big2", ["--x", "1"], {"B": "2"})
    lines = moorage("rollout", "history", "big").stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["2", "current"], ["1", "complete"]]
    assert "returns to revision 1" in moorage("rollout", "undo", "big").stdout
    assert manager.endpoints["big"].model == "org/big"
    assert json.loads(moorage("rollout", "history", "big", "-o", "json").stdout)["revisions"][1][
        "current"
    ]


def test_canary(manager: FakeManager, moorage: Run) -> None:
    served(moorage)
    assert "next revision of big gets 20 %" in moorage("rollout", "canary", "big", "20").stdout
    assert manager.endpoints["big"].rollout.canary == 20
    assert moorage("rollout", "canary", "big", "100").exit_code == 2
    result = moorage("rollout", "promote", "big")
    assert (result.exit_code, "has no canary" in result.stderr) == (1, True)


def test_refused_change(manager: FakeManager, moorage: Run) -> None:
    served(moorage)
    result = moorage("endpoints", "set", "big", "priority=5", "--if-version", "7")
    assert (result.exit_code, "has changed" in result.stderr) == (1, True)
    result = moorage("endpoints", "set", "big", "args=[1")
    assert (result.exit_code, "not valid JSON" in result.stderr) == (2, True)
    result = moorage("endpoints", "set", "big", "colour=red")
    assert "colour" in result.stderr


@pytest.mark.parametrize("wait", ["--wait", "--no-wait"])
def test_status_of_a_failed_rollout(manager: FakeManager, moorage: Run, wait: str) -> None:
    served(moorage)
    failed = RolloutView(
        state="failed",
        revision=1,
        newest=2,
        updated=1,
        ready=1,
        old=0,
        reason=Reason.OOM,
        detail="3 in a row",
    )
    manager.can("GET", "/v1/endpoints/big/rollout", 200, failed)
    result = moorage("rollout", "status", "big", wait)
    assert result.exit_code == 1
    assert "the program used more memory than it was allocated (oom): 3 in a row" in result.stdout


def test_serve_with_autoscaling(manager: FakeManager, moorage: Run) -> None:
    args = (
        "--min",
        "0",
        "--max",
        "4",
        "--scale-on",
        "waiting=2",
        "--idle-timeout",
        "5m",
        "--max-surge",
        "2",
    )
    assert moorage("serve", "org/big", *args).exit_code == 0
    spec = manager.endpoints["big"]
    assert spec.autoscale is not None
    scale = spec.autoscale
    assert (spec.replicas, scale.min, scale.max, scale.waiting, scale.idle_timeout_s) == (
        1,
        0,
        4,
        2,
        300,
    )
    assert spec.rollout.max_surge == 2
    result = moorage("serve", "org/big", "--scale-on", "mood=2")
    assert (result.exit_code, "rules are waiting, running" in result.stderr) == (2, True)


def test_describe_shows_the_decisions_about_an_endpoint_that_sleeps(
    manager: FakeManager, moorage: Run
) -> None:
    assert moorage("serve", "org/big", "--min", "0", "--max", "1", "--replicas", "0").exit_code == 0
    decided = ScalingDecision(
        at=datetime(2026, 1, 1, tzinfo=UTC), from_replicas=1, to_replicas=0, rule="idle",
        detail="no request for 600 s", inputs={"idle_s": 600.0},
    )  # fmt: skip
    manager.can(
        "GET", "/v1/endpoints/big/decisions", 200, Page[ScalingDecision](items=[decided], next=None)
    )
    shown = moorage("describe", "big").stdout
    assert "no request for 600 s" in shown
    assert "idle_s=600" in shown
