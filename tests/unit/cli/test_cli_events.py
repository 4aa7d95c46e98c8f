"""``moorage events``: what happens, as lines and as JSON."""

from __future__ import annotations

import pytest
from invoke import Run

from moorage.cli.commands.events import event_facts


def test_unknown_kind_is_refused(moorage: Run) -> None:
    refused = moorage("events", "--kinds", "budget,disk")
    assert refused.exit_code != 0
    assert "--kinds 'disk' is unknown" in refused.stderr
    assert "session, agent, endpoint, group, budget" in refused.stderr


@pytest.mark.parametrize(
    ("kind", "event", "facts"),
    [
        (
            "budget",
            {
                "scope": "project", "name": "vision", "unit": "gpu", "period": "month", "level": "soft",
                "threshold": 3_600_000, "used": 5_400_000,
            },
            ("project vision", "used 1.50 h of 1.00 h, its soft limit of gpu by the month"),
        ),
        ("session", {"name": "s", "status": "RUNNING", "reason": ""}, ("s", "RUNNING")),
        (
            "session",
            {"name": "s", "status": "PENDING", "pipeline": {"name": "train", "step": "part", "index": 3}},
            ("s", "PENDING", "train/part[3]"),
        ),
        (
            "endpoint",
            {"name": "m", "deleted": False, "replicas": 2, "revision": 3},
            ("m", "2 replicas", "revision 3"),
        ),
        ("agent", {"id": "n", "gone": False, "status": "LOST", "cordon": ""}, ("n", "LOST", "")),
        ("group", {"name": "g"}, ("g",)),
    ],
)  # fmt: skip
def test_facts(kind: str, event: dict[str, object], facts: tuple[str, ...]) -> None:
    assert event_facts(kind, event) == facts
