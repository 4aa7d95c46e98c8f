"""Values from a newer release: what a client accepts, and what it shows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from moorage.common.model.newer_values import known_part
from moorage.common.model.spec import SessionSpec
from moorage.common.views.resources import SessionView
from moorage.sdk.transport import read_answer

NOW = datetime(2026, 1, 1, tzinfo=UTC).isoformat()
SESSION: dict[str, Any] = {
    "id": "1", "name": "job", "type": "batch", "status": "PENDING", "result": "UNDEFINED", "reason": "",
    "detail": "", "resource_group": "default", "priority": 10, "attempt": 1, "revision": 1, "created_at": NOW,
    "status_since": NOW, "slots": {},
}  # fmt: skip


def test_a_client_refuses_an_answer_that_is_wrong() -> None:
    wrong = json.dumps({**SESSION, "spec": {"command": ["x"], "runtime": "docker", "tomorrow": 1}})
    with pytest.raises(ValidationError, match="requires `image`"):
        read_answer(SessionView, wrong.encode())


@pytest.mark.parametrize(
    ("stored", "known", "why"),
    [
        ({"command": ["x"]}, {"command": ["x"]}, ""),
        (
            {"command": ["x"], "tomorrow": 1}, {"command": ["x"]},
            "needs a newer manager: tomorrow: Extra inputs are not permitted",
        ),
        (
            {"command": ["x"], "a": 1, "b": 2}, {"command": ["x"]},
            "needs a newer manager: a: Extra inputs are not permitted, and 1 more",
        ),
        (
            {"command": ["x"], "retries": "often"}, {"command": ["x"]},
            "needs a newer manager: retries: Input should be a valid integer, unable to parse string as an "
            "integer",
        ),
        ({"engine": "oracle", "model": "m"}, {"command": ["nothing"]}, None),
        ({}, {"command": ["nothing"]}, None),
    ],
)  # fmt: skip
def test_the_known_part_of_a_spec(
    stored: dict[str, Any], known: dict[str, Any], why: str | None
) -> None:
    part, found = known_part(SessionSpec, stored, {"command": ["nothing"]})
    assert part == SessionSpec.model_validate(known)
    assert found.startswith("needs a newer manager") if why is None else found == why
