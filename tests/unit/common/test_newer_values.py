"""Values from a newer release: what a client accepts, and what it shows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from moorage.common.model.group_options import GroupOptions
from moorage.common.model.newer_values import KNOWN_FIELDS, known_part
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.templates import TemplateSpec
from moorage.common.views.endpoints import EndpointView
from moorage.common.views.resources import GroupView, Page, SessionView
from moorage.common.views.templates import TemplateView

NOW = datetime(2026, 1, 1, tzinfo=UTC).isoformat()
SESSION: dict[str, Any] = {
    "id": "1", "name": "job", "type": "batch", "status": "PENDING", "result": "UNDEFINED", "reason": "",
    "detail": "", "resource_group": "default", "priority": 10, "attempt": 1, "revision": 1, "created_at": NOW,
    "status_since": NOW, "slots": {},
}  # fmt: skip
ENDPOINT = {"id": "1", "name": "e", "status": "ready", "replicas": 1, "ready": 1, "created_at": NOW}
TEMPLATE = {
    "name": "t",
    "version": 1,
    "project": "",
    "bases": [],
    "created_at": NOW,
    "created_by": "ann",
}
GROUP = {"name": "g", "agents": 0, "pending": 0, "running": 0}
# For each, the view, the fields beside it, its name in the view, and the position of an unknown
# field.
SHOWN: dict[str, tuple[type[BaseModel], dict[str, Any], str, BaseModel, tuple[str | int, ...]]] = {
    "spec of a session": (
        SessionView, SESSION, "spec",
        SessionSpec.model_validate({"command": ["x"], "ports": [{"name": "web"}]}), ("ports", 0),
    ),
    "spec of an endpoint": (
        EndpointView, ENDPOINT, "spec",
        EndpointSpec(name="e", engine="vllm", model="m"), ("rollout",),
    ),
    "options of a group": (
        GroupView, GROUP, "options",
        GroupOptions.model_validate({"preemption": {}}), ("preemption",),
    ),
    "a template": (TemplateView, TEMPLATE, "template", TemplateSpec(spec={"command": ["x"]}), ()),
}  # fmt: skip


@pytest.mark.parametrize("kind", SHOWN)
def test_a_client_takes_what_it_knows_of_an_answer(kind: str) -> None:
    """A manager answers with all fields of a spec, so an additional one would break every older
    client."""
    view, beside, name, value, place = SHOWN[kind]
    shown = value.model_dump(mode="json")
    for inner in ((), place):
        where = shown
        for part in inner:
            where = where[part]

        where["tomorrow"] = {"x": None}

    answer = json.dumps({"items": [{**beside, name: shown, "new": 1}], "next": None})
    page = Page[view].model_validate_json(answer, context=KNOWN_FIELDS)  # type: ignore[valid-type]
    assert getattr(page.items[0], name) == value
    with pytest.raises(
        ValidationError, match="tomorrow"
    ):  # a client that stores it must know all of it
        Page[view].model_validate_json(answer)  # type: ignore[valid-type]


def test_a_client_refuses_an_answer_that_is_wrong() -> None:
    wrong = json.dumps({**SESSION, "spec": {"command": ["x"], "runtime": "docker", "tomorrow": 1}})
    with pytest.raises(ValidationError, match="requires `image`"):
        SessionView.model_validate_json(wrong, context=KNOWN_FIELDS)


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
