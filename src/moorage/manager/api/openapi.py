"""The description of the API (OpenAPI 3.1), made from the route table and the models that validate."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from moorage.common.views.resources import Problem
from moorage.manager.api.problems import PROBLEM_JSON
from moorage.manager.api.request import IDEMPOTENCY_KEY, KEY_MAX
from moorage.manager.api.route import Route

_REF = "#/components/schemas/{model}"
_PART = re.compile(r"\{(\w+)(?::[^{}]*)?\}")

Schemas = Mapping[tuple[Any, Literal["validation", "serialization"]], dict[str, Any]]


def describe(routes: Iterable[Route], version: str) -> dict[str, Any]:
    """The whole document."""
    rows = list(routes)
    wanted: dict[tuple[type[BaseModel], Literal["validation", "serialization"]], None] = {}
    for row in rows:
        if row.body is not None:
            wanted[row.body, "validation"] = None
        if not isinstance(row.answer, str):
            wanted[row.answer, "serialization"] = None
        if row.dry_run is not None:
            wanted[row.dry_run, "serialization"] = None
    wanted[Problem, "serialization"] = None
    schemas, definitions = models_json_schema(list(wanted), ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        paths.setdefault(_PART.sub(r"{\1}", row.path), {})[row.method.lower()] = _operation(row, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Moorage",
            "version": version,
            "description": "Sessions, endpoints, agents and resource groups. Errors are RFC 9457 problems.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": definitions.get("$defs", {}),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "responses": {
                "problem": {
                    "description": "What is wrong and what to do next",
                    "content": {PROBLEM_JSON: {"schema": schemas[Problem, "serialization"]}},
                }
            },
        },
    }


def _operation(row: Route, schemas: Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": getattr(row.handler, "__name__", row.summary),
        "summary": row.summary,
        "tags": [row.tag],
        "security": [] if row.access == "open" else [{"key": []}],
        "parameters": [*_path_parameters(row), *_query_parameters(row), *_header_parameters(row)],
        "responses": {
            str(row.status): _answer(row, schemas),
            "default": {"$ref": "#/components/responses/problem"},
        },
    }
    if row.dry_run is not None:
        content = {"application/json": {"schema": schemas[row.dry_run, "serialization"]}}
        operation["responses"]["200"] = {"description": "To `dry_run`: nothing was made", "content": content}
    if row.body is not None:
        schema = schemas[row.body, "validation"]
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def _answer(row: Route, schemas: Schemas) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": HTTPStatus(row.status).phrase}
    if isinstance(row.answer, str):
        schema: dict[str, Any] = {"type": "object" if row.answer.endswith("json") else "string"}
        answer["content"] = {row.answer: {"schema": schema}}
    else:
        answer["content"] = {"application/json": {"schema": schemas[row.answer, "serialization"]}}
    if row.location:
        answer["headers"] = {"Location": {"description": row.location, "schema": {"type": "string"}}}
    return answer


def _path_parameters(row: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PART.findall(row.path)
    ]


def _query_parameters(row: Route) -> list[dict[str, Any]]:
    """In place, because a parameter is not a component: definitions are written out where they are used."""
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
    if not row.idempotent:
        return []
    told = (
        "Makes it safe to send the request again: the same key and body give the same answer for a day (and "
        "`Idempotent-Replayed: true`), another body is refused with 409."
    )
    schema = {"type": "string", "minLength": 1, "maxLength": KEY_MAX}
    parameter = {"name": IDEMPOTENCY_KEY, "in": "header", "required": False, "description": told}
    return [parameter | {"schema": schema}]


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        named = definitions[schema["$ref"].rpartition("/")[2]]
        return _inlined(named | {key: part for key, part in schema.items() if key != "$ref"}, definitions)
    return {key: _inlined(part, definitions) for key, part in schema.items()}
