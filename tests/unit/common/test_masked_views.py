"""Answers that contain a specification, and the secrets in it that they must not show."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel, TypeAdapter

import moorage.common.views
from moorage.common.model.spec import EndpointSpec, SessionSpec, Workload

_ENV = {"HF_TOKEN": "hunter2", "SEED": "1"}
_SPECS: dict[type[Workload], Workload] = {
    SessionSpec: SessionSpec.model_validate(
        {
            "command": ["x"],
            "env": _ENV,
            "cluster": {"size": 2, "sub": {"env": {"API_KEY": "hunter3"}}},
        }
    ),
    EndpointSpec: EndpointSpec(name="m", command=["x"], probe={}, env=_ENV),  # type: ignore[arg-type]
}


def _models() -> list[type[BaseModel]]:
    found = []
    for module in pkgutil.iter_modules(moorage.common.views.__path__, "moorage.common.views."):
        for value in vars(importlib.import_module(module.name)).values():
            if (
                isinstance(value, type)
                and issubclass(value, BaseModel)
                and value.__module__ == module.name
            ):
                found.append(value)

    return found


def _spec_fields() -> list[tuple[type[BaseModel], str, Any]]:
    """Fields of the answers whose type contains a specification."""
    return [
        (model, name, field)
        for model in _models()
        for name, field in model.model_fields.items()
        if _specs_in(field.annotation)
    ]


def _specs_in(annotation: Any) -> list[type[Workload]]:
    if isinstance(annotation, type) and issubclass(annotation, Workload):
        return [annotation]
    return (
        [spec for part in get_args(annotation) for spec in _specs_in(part)]
        if get_origin(annotation)
        else []
    )


def test_specifications_are_found_in_answers() -> None:
    assert {model.__name__ for model, _, _ in _spec_fields()} >= {"SessionView", "EndpointView"}


@pytest.mark.parametrize(
    ("model", "name", "field"),
    [pytest.param(*found, id=found[0].__name__) for found in _spec_fields()],
)
def test_no_answer_shows_a_secret(model: type[BaseModel], name: str, field: Any) -> None:
    spec = _SPECS[_specs_in(field.annotation)[0]]
    shown = model.model_construct(**{name: spec}).model_dump_json(include={name}, warnings=False)
    assert "hunter" not in shown
    assert '"SEED":"1"' in shown


@pytest.mark.parametrize("spec", _SPECS.values(), ids=lambda spec: type(spec).__name__)
def test_a_shown_specification_is_still_one(spec: Workload) -> None:
    assert TypeAdapter(type(spec)).validate_python(spec.model_dump(mode="json")) == spec
