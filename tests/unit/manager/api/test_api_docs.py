"""Problem types, examples and descriptions of the REST API."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import moorage.common
import moorage.manager
from moorage.common.model.base import Model
from moorage.common.model.errors import MoorageError
from moorage.manager.api.http.openapi import describe
from moorage.manager.api.http.problem_types import TYPES
from moorage.manager.api.routes import ROUTES

# Errors at start, and from a command that reads a file.
NOT_REST = {"config", "startup", "corrupt-decision-log", "error"}
# Packages and modules whose errors never reach the manager's API.
ELSEWHERE = (
    "moorage.common.archive",
    "moorage.common.etcd",
    "moorage.agent",
    "moorage.cli",
    "moorage.sdk",
    "moorage.server",
    "moorage.simulator",
    "moorage.proxy",
)


def _errors(kind: type[MoorageError] = MoorageError) -> Iterator[type[MoorageError]]:
    for one in kind.__subclasses__():
        yield one
        yield from _errors(one)


def test_every_error_of_the_api_has_a_type_with_its_status() -> None:
    for package in (moorage.common, moorage.manager):  # whatever earlier tests have imported
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "migrations" not in module.name:
                importlib.import_module(module.name)

    found = {
        (one.code, one.http)
        for one in _errors()
        if one.__module__.startswith("moorage.")
        and not one.__module__.startswith(ELSEWHERE)
        and one.code not in NOT_REST
    }
    assert found == {(code, one.status) for code, one in TYPES.items()}


def test_every_operation_has_a_description_and_its_body_an_example() -> None:
    for path, operations in describe(ROUTES, "1")["paths"].items():
        for method, operation in operations.items():
            assert len(operation["description"]) > len(operation["summary"]), (method, path)
            for kind, content in operation.get("requestBody", {}).get("content", {}).items():
                if kind == "application/json":
                    assert isinstance(content["example"], dict), (method, path)


def test_each_body_has_a_valid_example_of_its_own() -> None:
    bodies = {row.body for row in ROUTES if row.body is not None}
    assert {model.__name__ for model in bodies if "EXAMPLE" not in vars(model)} == set()
    for model in bodies:
        model.model_validate(model.EXAMPLE)


def test_only_bodies_have_examples() -> None:
    bodies = {row.body for row in ROUTES}
    having = {model for model in _models() if "EXAMPLE" in vars(model)}
    assert having - bodies == set()


def _models(kind: type[Model] = Model) -> Iterator[type[Model]]:
    for model in kind.__subclasses__():
        yield model
        yield from _models(model)
