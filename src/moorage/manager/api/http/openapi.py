"""OpenAPI 3.1 description, generated from the route table and the models that validate requests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from moorage.common.views.resources import Problem
from moorage.manager.api.http.problems import PROBLEM_JSON
from moorage.manager.api.http.request import BUDGET_WARNING, IDEMPOTENCY_KEY, KEY_MAX
from moorage.manager.api.http.route import Access, Route
from moorage.manager.identity.csrf import COOKIE

_REF = "#/components/schemas/{model}"
CALLERS: Mapping[Access, str] = {
    "open": "Needs no key.",
    "viewer": "Open to every key, for resources of its project.",
    "member": "Open to members of the project.",
    "owner": (
        "Open to members for their own resources, and to project admins for those of the project."
    ),
    "project-admin": "Open to project admins.",
    "auditor": "Open to auditors and administrators.",
    "admin": "For administrators.",
}
_WARNED = "Exhausted budgets of the caller's project, user or key; absent if there are none."
_PART = re.compile(r"\{(\w+)(?::[^{}]*)?\}")

Schemas = Mapping[tuple[Any, Literal["validation", "serialization"]], dict[str, Any]]


def describe(routes: Iterable[Route], version: str) -> dict[str, Any]:
    """The complete document."""
    rows = list(routes)
    models: dict[tuple[type[BaseModel], Literal["validation", "serialization"]], None] = {}
    for row in rows:
        if row.body is not None:
            models[row.body, "validation"] = None
        if not isinstance(row.returns, str):
            models[row.returns, "serialization"] = None
        if row.dry_run is not None:
            models[row.dry_run, "serialization"] = None

    models[Problem, "serialization"] = None
    schemas, definitions = models_json_schema(list(models), ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        paths.setdefault(path_of(row), {})[row.method.lower()] = _operation(row, schemas)

    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Moorage",
            "version": version,
            "description": "Manages sessions, endpoints, agents and resource groups. "
            "Errors are problem documents (RFC 9457).",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": definitions.get("$defs", {}),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "console": {"type": "apiKey", "in": "cookie", "name": COOKIE},
            },
            "responses": {
                "problem": {
                    "description": "The cause of the error and the next step",
                    "content": {PROBLEM_JSON: {"schema": schemas[Problem, "serialization"]}},
                }
            },
        },
    }


def path_of(row: Route) -> str:
    """The route's path as written in the document."""
    return _PART.sub(r"{\1}", row.path)


def _operation(row: Route, schemas: Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": getattr(row.handler, "__name__", row.summary),
        "summary": row.summary,
        "description": _description(row),
        "tags": [row.tag],
        "security": [] if row.access == "open" else [{"key": []}, {"console": []}],
        "parameters": [*_path_parameters(row), *_query_parameters(row), *_header_parameters(row)],
        "responses": {
            str(row.status): _response(row, schemas),
            **{
                str(status): {"$ref": "#/components/responses/problem"}
                for status in problem_statuses(row)
            },
        },
    }
    if row.dry_run is not None:
        content = {"application/json": {"schema": schemas[row.dry_run, "serialization"]}}
        operation["responses"]["200"] = {
            "description": "With `dry_run`: nothing was created",
            "content": content,
        }

    if row.body is not None:
        schema = schemas[row.body, "validation"]
        body = {"schema": schema, "example": row.body.EXAMPLE}
        operation["requestBody"] = {"required": True, "content": {"application/json": body}}

    return operation


def _description(row: Route) -> str:
    """The permitted callers of the route, and how it handles repeated requests and concurrent
    changes."""
    parts = [row.summary.rstrip(".") + ".", CALLERS[row.access]]
    if row.access != "open":
        parts.append(f"A key with scopes needs `{row.needs}`.")

    if row.versioned:
        parts.append(
            "With If-Match, the request is refused (412) if the resource has changed since it "
            "was read."
        )

    if row.idempotent:
        parts.append("With an Idempotency-Key, the request is safe to repeat.")
    if row.dry_run is not None:
        parts.append("With `dry_run`, it creates nothing and returns what would happen.")

    return " ".join(parts)


def problem_statuses(row: Route) -> list[int]:
    """Statuses of the errors that a route may return; a proxy in between may return others.

    400: the HTTP message is malformed or ambiguous. 405: a name in an unusual form turns the path
    into another route's path."""
    found = {400, 414, 421, 422, 431, 503, 505}
    if row.access != "open":
        found |= {401, 403, 404, 409}
    if row.body is not None:
        found |= {403, 408, 409, 413, 415}
    if _PART.search(row.path):
        found |= {404, 405}
    if row.versioned:
        found.add(412)

    return sorted((found | set(row.also)) - {row.status})


def _response(row: Route, schemas: Schemas) -> dict[str, Any]:
    response: dict[str, Any] = {"description": HTTPStatus(row.status).phrase}
    if isinstance(row.returns, str):
        schema: dict[str, Any] = {"type": "object" if row.returns.endswith("json") else "string"}
        response["content"] = {row.returns: {"schema": schema}}
    else:
        response["content"] = {
            "application/json": {"schema": schemas[row.returns, "serialization"]}
        }

    headers = {"Location": row.location} if row.location else {}
    if row.access != "open" and not isinstance(row.returns, str):
        headers[BUDGET_WARNING] = _WARNED

    if headers:
        response["headers"] = {
            name: {"description": description, "schema": {"type": "string"}}
            for name, description in headers.items()
        }

    return response


def _path_parameters(row: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PART.findall(row.path)
    ]


def _query_parameters(row: Route) -> list[dict[str, Any]]:
    """Query parameters with their definitions inlined, because parameters cannot refer to component
    schemas."""
    described = row.query.model_json_schema()
    definitions = described.get("$defs", {})
    parameters = []
    for name, schema in described.get("properties", {}).items():
        parameter = {"name": name, "in": "query", "required": name in described.get("required", [])}
        if text := schema.pop("description", ""):
            parameter["description"] = text

        parameters.append(parameter | {"schema": _inlined(schema, definitions)})

    return parameters


def _header_parameters(row: Route) -> list[dict[str, Any]]:
    found = []
    if row.versioned:
        found.append(
            {
                "name": "If-Match",
                "in": "header",
                "required": False,
                "description": (
                    "The ETag of the last response; 412 if the resource now has a different one."
                ),
                "schema": {"type": "string"},
            }
        )

    if not row.idempotent:
        return found

    description = (
        "Makes the request safe to repeat. For a day, the same key with the same body returns the "
        "same "
        "response, with `Idempotent-Replayed: true`. The same key with another body is rejected "
        "with 409."
    )
    schema = {"type": "string", "minLength": 1, "maxLength": KEY_MAX}
    parameter = {
        "name": IDEMPOTENCY_KEY,
        "in": "header",
        "required": False,
        "description": description,
    }
    return [*found, parameter | {"schema": schema}]


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema

    if "$ref" in schema:
        named = definitions[schema["$ref"].rpartition("/")[2]]
        return _inlined(
            named | {key: part for key, part in schema.items() if key != "$ref"}, definitions
        )

    return {key: _inlined(part, definitions) for key, part in schema.items()}
