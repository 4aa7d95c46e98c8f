"""Runtime choice in specifications and settings: a built-in runtime or a plug-in's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from moorage.common.model.runtimes import RUNTIMES, is_custom, traits_of

_PLUGIN = {"type": "string", "pattern": "^custom:[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$"}


def _one_of(names: list[str]) -> Callable[[str], str]:
    def check(name: str) -> str:
        if name in names or is_custom(name):
            return name
        expected = ", ".join(f"'{allowed}'" for allowed in names) + " or 'custom:NAME'"
        # The error message for a ``Literal``, which this type would be without plug-ins.
        raise PydanticCustomError(
            "literal_error", "Input should be {expected}", {"expected": expected}
        )

    return check


def _schema(names: list[str]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"type": "string", "enum": names}, _PLUGIN]})


_ALL: list[str] = list(RUNTIMES)
_SITES: list[str] = [name for name in _ALL if traits_of(name).site_jobs]
RuntimeChoice = Annotated[str, AfterValidator(_one_of(_ALL)), _schema(_ALL)]
# Runtimes whose kernels may be jobs of a site.
SiteRuntimeChoice = Annotated[str, AfterValidator(_one_of(_SITES)), _schema(_SITES)]
