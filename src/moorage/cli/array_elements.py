"""Elements of arrays by name: ``sweep[3]``, ``sweep_3``, ``train/part[3-5]``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from moorage.common.model.errors import InvalidInput, NotFound
from moorage.sdk.errors import ApiError

if TYPE_CHECKING:
    from moorage.common.views.pipelines import PipelineView
    from moorage.common.views.resources import SessionView
    from moorage.sdk import Client

_BRACKETS = re.compile(r"(?P<name>.+)\[(?P<indexes>[^\[\]]*)\]")
_UNDERSCORE = re.compile(r"(?P<name>.+)_(?P<indexes>[0-9]{1,9})")


class Elements(NamedTuple):
    """Elements as named on the command line. ``name``: a pipeline, or PIPELINE/STEP."""

    name: str
    indexes: str


def parse_elements(text: str) -> Elements | None:
    """The elements that ``text`` names; None if it cannot be the name of any. Raises
    ``InvalidInput`` for indexes in brackets that are none."""
    # Imported here because showing a command's help does not need it.
    from moorage.common.model.pipelines import Array

    if found := _BRACKETS.fullmatch(text):
        try:
            Array.parse(found["indexes"])
        except ValueError as error:
            raise InvalidInput(
                f"{text!r} names no elements: {error}", next_step=f"{found['name']}[3]"
            ) from None
    else:
        found = _UNDERSCORE.fullmatch(text)

    return None if found is None else Elements(found["name"], found["indexes"])


def element_example(text: str) -> str:
    """One of the elements that ``text`` names."""
    from moorage.common.model.pipelines import Array

    named = parse_elements(text)
    assert named is not None
    return f"{named.name}[{Array.parse(named.indexes).indexes[0]}]"


async def find_pipeline(client: Client, name: str) -> PipelineView | None:
    """The pipeline with this id or name, without its steps."""
    try:
        return await client.pipelines.get(name, steps=False)
    except ApiError as error:
        if error.status != 404:
            raise
        return None


async def find_elements(client: Client, text: str) -> list[SessionView]:
    """The latest run of each element that ``text`` names; empty if it names none. Raises
    ``NotFound`` if the array lacks an element, and ``InvalidInput`` if several arrays have it."""
    named = parse_elements(text)
    if named is None:
        return []

    step = None
    view = await find_pipeline(client, named.name)
    if view is None:
        name, slash, step = named.name.rpartition("/")
        view = await find_pipeline(client, name) if slash else None
    if view is None:
        return []

    arrays = [array for array in view.arrays if step in (None, array.step)]
    if len(arrays) > 1:
        choices = ", ".join(f"{view.name}/{array.step}[{named.indexes}]" for array in arrays[:5])
        raise InvalidInput(
            f"pipeline {view.name!r} has {len(arrays)} arrays", next_step=f"name one of {choices}"
        )
    if not arrays:
        return []

    found = await client.sessions.list(pipeline=view.id, index=named.indexes)
    return _latest(view, arrays[0].step, named, found)


def _latest(
    view: PipelineView, step: str, named: Elements, found: list[SessionView]
) -> list[SessionView]:
    from moorage.common.model.pipelines import Array

    latest: dict[int, SessionView] = {}
    for session in sorted(found, key=lambda s: s.pipeline.run if s.pipeline else 0):
        place = session.pipeline
        if place is not None and place.step == step and place.index is not None:
            latest[place.index] = session

    wanted = Array.parse(named.indexes).indexes
    missing = [index for index in wanted if index not in latest]
    if missing:
        array = next(array.array for array in view.arrays if array.step == step)
        raise NotFound(
            f"array {view.name}[{array}] has no element {missing[0]}",
            next_step=f"`moorage pipelines describe {view.name} --elements` lists them",
        )
    return [latest[index] for index in wanted]
