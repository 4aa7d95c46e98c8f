"""Route table of the REST API: all routes that the handlers of the subjects declare.

It is the single source of handlers, validation and ``/openapi.json``. A package of this folder has
the handlers of a subject, except for ``http``, which they share.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from moorage.manager.api.http.route import Route, routes_of

_FOLDER = Path(__file__).parent
_PACKAGE = __name__.rpartition(".")[0]


def _handler_modules() -> Iterator[str]:
    for subject in pkgutil.iter_modules([str(_FOLDER)]):
        if subject.ispkg and subject.name != "http":
            folder = str(_FOLDER / subject.name)
            for module in pkgutil.iter_modules([folder], f"{_PACKAGE}.{subject.name}."):
                yield module.name


def _order(row: Route) -> tuple[bool, str]:
    """By path, the service itself last. The routes of one path keep the order of the source."""
    return not row.path.startswith("/v1/"), row.path


ROUTES: tuple[Route, ...] = tuple(
    sorted(
        (row for name in sorted(_handler_modules()) for row in routes_of(import_module(name))),
        key=_order,
    )
)
