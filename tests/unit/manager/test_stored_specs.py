"""Stored specs: those of sessions in listings are validated once and cached while they are small,
and those of endpoints omit absent fields."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.views.resources import SessionView
from moorage.manager.store.endpoints.rows import spec_columns
from moorage.manager.store.sessions.rows import stored_spec


def text(env: dict[str, str]) -> str:
    return SessionSpec(name="job", command=["x"], env=env).model_dump_json(exclude_none=True)


def test_a_small_spec_is_parsed_once_and_a_large_one_is_not_kept() -> None:
    small = text({"A": "1"})
    large = text({"A": "1" * 5000})
    assert stored_spec(small) is stored_spec(small)
    assert stored_spec(large) == stored_spec(large)
    assert stored_spec(large) is not stored_spec(large)


def test_a_view_takes_a_spec_as_it_is_and_checks_any_other() -> None:
    spec = stored_spec(text({"TOKEN": "x", "A": "1"}))
    now = datetime(2026, 1, 1, tzinfo=UTC)
    fields = {
        "id": "1", "name": "job", "type": "batch", "status": "PENDING", "result": "UNDEFINED", "reason": "",
        "detail": "", "resource_group": "default", "priority": 10, "attempt": 1, "revision": 1,
        "created_at": now, "status_since": now, "deadline_at": None, "user": "ann", "project": "vision",
        "isolated": False, "slots": {}, "spec": spec, "kernels": [],
    }  # fmt: skip
    view = SessionView.model_validate(fields)
    assert view.spec is spec
    assert view.model_dump()["spec"]["env"] == {"TOKEN": "***", "A": "1"}
    with pytest.raises(ValidationError, match="requires `image`"):
        SessionView.model_validate(fields | {"spec": {"command": ["x"], "runtime": "docker"}})


@pytest.mark.parametrize(
    "more", [{}, {"arch": "x86_64"}, {"secret_env": {"KEY": "token"}}, {"max_lifetime_s": 60}]
)
def test_an_endpoint_is_stored_without_optional_fields_and_read_as_it_was(
    more: dict[str, object],
) -> None:
    base = {"name": "e", "engine": "llamacpp", "model": "m.gguf", "resources": {"cuda.device": 1}}
    spec = EndpointSpec.model_validate(base | more)
    stored, serving = spec_columns(spec)
    revision = spec.template()
    for columns in (stored, serving, revision):
        assert None not in columns.values()

    given = set(more)
    assert {"overlap", "probe", "image", "secret_env"} & (stored.keys() | revision.keys()) <= given
    assert given <= stored.keys() | serving.keys()
    assert given <= revision.keys()
    assert EndpointSpec.model_validate(stored | serving) == spec
    before = spec.model_dump(mode="json")  # as the previous release stores it
    assert EndpointSpec.model_validate(before).template() == revision
