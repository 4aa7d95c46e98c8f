"""Bodies whose fields have values of the wrong type: every model refuses them, and none crashes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError

from moorage.manager.api.routes import ROUTES

KINDS = (
    None,
    True,
    -1,
    1.5,
    2**70,
    "",
    "\0",
    "x" * 300,
    [],
    {},
    [[]],
    [{}],
    [None],
    {"a": {}},
    {"a": [1]},
    {"": None},
)
BODIES = sorted(
    {row.body for row in ROUTES if row.body is not None}, key=lambda model: model.__name__
)


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


def wrong(
    model: type[BaseModel], seen: tuple[type[BaseModel], ...] = ()
) -> Iterator[dict[str, Any]]:
    """Objects in which one field, at any depth, has a value of each type."""
    for name, field in model.model_fields.items():
        for kind in KINDS:
            yield {name: kind}
        for inner in set(models_in(field.annotation)) - {model, *seen}:
            for part in wrong(inner, (*seen, model)):
                yield from ({name: part}, {name: [part]}, {name: {"a": part}})


@pytest.mark.parametrize("model", BODIES, ids=lambda model: model.__name__)
def test_a_value_of_another_kind_is_refused_and_nothing_fails(model: type[BaseModel]) -> None:
    for given in (*KINDS, *wrong(model)):
        try:
            model.model_validate_json(json.dumps(given))
        except ValidationError:
            pass
        except Exception as error:
            error.add_note(f"given {given!r:.300}")
            raise
