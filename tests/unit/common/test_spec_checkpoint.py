"""The checkpoint signal in a session's specification and on the command line."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from moorage.cli import parse
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.manager.lifecycle.deadlines import deadline_s
from moorage.manager.store.sessions.creation import stored_json


def spec(**fields: Any) -> SessionSpec:
    return SessionSpec.model_validate({"command": ["x"], "stop_grace_s": 5} | fields)


def test_it_lengthens_the_time_to_stop() -> None:
    plain = spec()
    saving = spec(checkpoint={"grace_s": 45})
    assert (plain.stop_s, saving.stop_s) == (5, 50)
    assert saving.checkpoint is not None
    assert saving.checkpoint.signal == "USR1"
    late, later = (deadline_s(Status.TERMINATING, one, 0) for one in (plain, saving))
    assert late is not None
    assert later == late + 45


def test_a_spec_without_it_is_stored_as_the_release_before_has_it() -> None:
    assert "checkpoint" not in stored_json(spec())
    assert "checkpoint" in stored_json(spec(checkpoint={}))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"checkpoint": {"signal": "KILL"}}, "signal"),
        ({"checkpoint": {"grace_s": 0}}, "greater than 0"),
        ({"checkpoint": {"grace_s": 3601}}, "less than or equal to 3600"),
        ({"runtime": "celery", "checkpoint": {}}, "cannot send its programs signals"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        spec(**fields)


@pytest.mark.parametrize(
    ("text", "given"),
    [(None, None), ("USR2", {"signal": "USR2"}), ("HUP:90", {"signal": "HUP", "grace_s": "90"})],
)
def test_on_the_command_line(text: str | None, given: dict[str, str] | None) -> None:
    assert parse.checkpoint(text) == given
    if given:
        assert spec(checkpoint=given).checkpoint is not None
