"""The description says what the server does: both come from one table, and this looks at the result."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest
from aiohttp import web

from moorage.common.model.spec import SessionSpec
from moorage.manager.api.openapi import describe
from moorage.manager.api.route import Route
from moorage.manager.api.routes import ROUTES

DOCUMENT: dict[str, Any] = describe(ROUTES, "1.2.3")

EXPECTED = {
    "/v1/sessions": {"get", "post"},
    "/v1/sessions/{ref}": {"get"},
    "/v1/sessions/{ref}/stop": {"post"},
    "/v1/sessions/{ref}/exec": {"get"},
    "/v1/sessions/{ref}/history": {"get"},
    "/v1/sessions/{ref}/why": {"get"},
    "/v1/sessions/{ref}/logs": {"get"},
    "/v1/sessions/{ref}/apps": {"get"},
    "/v1/sessions/{ref}/apps/{app}/access-tokens": {"get", "post"},
    "/v1/sessions/{ref}/apps/{app}/access-tokens/{id}": {"delete"},
    "/v1/workspaces": {"get"},
    "/v1/workspaces/{ref}": {"delete"},
    "/v1/endpoints": {"get", "post"},
    "/v1/endpoints/{name}": {"get", "delete"},
    "/v1/endpoints/{name}/scale": {"post"},
    "/v1/agents": {"get"},
    "/v1/agents/{id}": {"get", "delete"},
    "/v1/agents/{id}/cordon": {"put", "delete"},
    "/v1/agents/{id}/history": {"get"},
    "/v1/agents/{id}/stats": {"get"},
    "/v1/sessions/{ref}/stats": {"get"},
    "/v1/stats/agents": {"get"},
    "/v1/stats/sessions": {"get"},
    "/v1/groups": {"get"},
    "/v1/groups/{name}": {"get", "put"},
    "/v1/quotas": {"get"},
    "/v1/quotas/{scope}/{name}": {"get", "put", "delete"},
    "/v1/scheduler/decisions": {"get"},
    "/v1/scheduler/runs": {"get"},
    "/v1/keys": {"get", "post"},
    "/v1/keys/{name}": {"get", "delete"},
    "/v1/join-tokens": {"get", "post"},
    "/v1/join-tokens/{id}": {"delete"},
    "/v1/join": {"post"},
    "/v1/peers": {"get"},
    "/v1/peers/{kind}/{name}": {"delete"},
    "/livez": {"get"},
    "/readyz": {"get"},
    "/metrics": {"get"},
    "/version": {"get"},
    "/openapi.json": {"get"},
    "/": {"get"},
}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for inner in part.values():
            yield from references(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from references(inner)


def test_every_route_is_described() -> None:
    assert {path: set(methods) for path, methods in DOCUMENT["paths"].items()} == EXPECTED


def test_every_reference_leads_somewhere() -> None:
    found = set(references(DOCUMENT))
    assert "#/components/schemas/SessionSpec" in found
    for reference in found:
        place: Any = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
        assert isinstance(place, dict)


def test_operations_are_named_once_and_declare_their_path_parameters() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(names) == len(set(names))
    for path, _, operation in operations():
        declared = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
        assert declared == set(re.findall(r"\{(\w+)\}", path))


def test_only_the_service_routes_and_joining_are_open() -> None:
    open_paths = {path for path, _, operation in operations() if operation["security"] == []}
    # Whoever joins has no key: the request is signed with its join token.
    assert open_paths == {path for path in EXPECTED if not path.startswith("/v1/")} | {"/v1/join"}


def test_bodies_and_queries_are_those_that_validate() -> None:
    schema = DOCUMENT["components"]["schemas"]["SessionSpec"]
    assert set(schema["properties"]) == set(SessionSpec.model_fields)
    assert schema["additionalProperties"] is False
    listing = DOCUMENT["paths"]["/v1/sessions"]["get"]
    assert {p["name"] for p in listing["parameters"]} == {
        "limit",
        "cursor",
        "status",
        "resource_group",
        "type",
        "name",
        "endpoint",
    }
    (limit,) = [p for p in listing["parameters"] if p["name"] == "limit"]
    assert (limit["schema"]["minimum"], limit["schema"]["maximum"], limit["schema"]["default"]) == (
        1,
        500,
        50,
    )


@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/endpoints"])
def test_a_creation_says_where_it_is(path: str) -> None:
    assert "Location" in DOCUMENT["paths"][path]["post"]["responses"]["201"]["headers"]


def test_the_answer_to_a_dry_run_is_described() -> None:
    answers = DOCUMENT["paths"]["/v1/sessions"]["post"]["responses"]
    schemas = {
        status: answers[status]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for status in ("200", "201")
    }
    assert schemas == {"200": "PlanView", "201": "SessionView"}


@pytest.mark.parametrize("row", ROUTES, ids=lambda row: f"{row.method} {row.path}")
def test_a_row_declares_what_its_handler_takes_and_gives(row: Route) -> None:
    hints = get_type_hints(row.handler)
    body, query = get_args(hints["call"])
    assert (body, query) == (row.body or type(None), row.query)
    if isinstance(row.answer, str) or row.path == "/readyz":  # answers 200 or 503 with the same model
        assert issubclass(hints["return"], web.StreamResponse)
    else:
        assert hints["return"] == (row.answer | row.dry_run if row.dry_run else row.answer)
