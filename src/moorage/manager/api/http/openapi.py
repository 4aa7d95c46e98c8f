"""OpenAPI 3.1 description, generated from the route table and the models that validate requests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from http import HTTPStatus
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from moorage.common.model.cron_jobs import CronJobSpec
from moorage.common.model.errors import NotFound
from moorage.common.model.spec import SessionSpec
from moorage.common.model.templates import TemplateSpec
from moorage.common.views.resources import Problem, masked_spec
from moorage.manager.api.http.examples import Examples
from moorage.manager.api.http.problems import PROBLEM_JSON, problem_of
from moorage.manager.api.http.request import BUDGET_WARNING, IDEMPOTENCY_KEY, KEY_MAX
from moorage.manager.api.http.route import Access, Route
from moorage.manager.api.http.tags import TAGS
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
# Generated programs name a variable after the schema, beside those of its fields: a schema named
# like one of its own fields needs another name.
_RENAMED = {"Port": "ServicePort", "Capacity": "SlotCapacity", "Version": "Release"}
# A list of items, as pydantic names it.
_LIST = re.compile(r"(Page|Items)_(\w+?)(?:View)?_")
# What is sent in other media types than JSON.
_TEXTS = {
    "text/plain": "epoch 1: loss 0.42\n",
    "text/event-stream": 'id: 42\nevent: session\ndata: {"id": "01JD4W8Z7H3K5M9QX2R6T0V1BC"}\n\n',
}
_ERROR = NotFound("no session 'train'", next_step="`moorage ps` lists sessions")
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

    models[Problem, "serialization"] = None
    schemas, described = models_json_schema(list(models), ref_template=_REF)
    names = {name: _public(name) for name in described.get("$defs", {})}
    definitions = {
        names[name]: _with_names(schema, names) | {"title": names[name]}
        for name, schema in described["$defs"].items()
    }
    schemas = {key: _with_names(schema, names) for key, schema in schemas.items()}
    # With the defaults that the next step removes.
    examples = Examples(deepcopy(definitions), _objects())
    bodies = _reachable(
        definitions, [schemas[row.body, "validation"] for row in rows if row.body is not None]
    )
    for name, schema in definitions.items():
        if name in bodies:
            _leave_defaults_to_the_server(schema)
        elif "properties" in schema:  # an answer has all fields
            schema["required"] = [*schema["properties"]]

    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        operation = _operation(row, schemas, examples)
        paths.setdefault(path_of(row), {})[row.method.lower()] = operation

    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Moorage",
            "version": version,
            "description": "Manages sessions, endpoints, agents and resource groups. "
            "Errors are problem documents (RFC 9457).",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The manager that sent this document"}],
        "tags": [
            {"name": tag, "description": TAGS[tag]} for tag in sorted({row.tag for row in rows})
        ],
        "paths": paths,
        "components": {
            "schemas": definitions,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "console": {"type": "apiKey", "in": "cookie", "name": COOKIE},
            },
            "responses": {
                "problem": {
                    "description": "The cause of the error and the next step",
                    "content": {
                        PROBLEM_JSON: {
                            "schema": schemas[Problem, "serialization"],
                            "example": problem_of(_ERROR, _ERROR.http).model_dump(mode="json"),
                        }
                    },
                }
            },
        },
    }


def _objects() -> dict[str, Any]:
    """The examples of bodies, as answers repeat them."""
    spec = masked_spec(SessionSpec.model_validate(SessionSpec.EXAMPLE))
    return {
        "spec": spec,
        "runtime": spec["runtime"],
        "runtimes": [spec["runtime"]],
        "CronJobView.spec": CronJobSpec.EXAMPLE,
        "template": TemplateSpec.model_validate(TemplateSpec.EXAMPLE).model_dump(mode="json"),
    }


def _public(name: str) -> str:
    """The name of a schema: ``SessionPage`` instead of ``Page_SessionView_``."""
    found = _LIST.fullmatch(name)
    if found is not None:
        return found[2] + ("Page" if found[1] == "Page" else "List")
    return _RENAMED.get(name, name)


def _with_names(schema: Any, names: Mapping[str, str]) -> Any:
    """``schema`` with its references under the new names."""
    if isinstance(schema, list):
        return [_with_names(part, names) for part in schema]
    if not isinstance(schema, dict):
        return schema

    return {
        key: _REF.format(model=names[part.rpartition("/")[2]])
        if key == "$ref"
        else _with_names(part, names)
        for key, part in schema.items()
    }


def _reachable(definitions: Mapping[str, Any], schemas: Any) -> set[str]:
    """Names of the schemas to which ``schemas`` refer, directly or not."""
    found: set[str] = set()
    left = _references(schemas)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += _references(definitions[name])

    return found


def _leave_defaults_to_the_server(schema: Mapping[str, Any]) -> None:
    """Move the defaults of a body's fields into their descriptions.

    Generators of clients take a field with a default for one that is always present: TypeScript
    programs then have to name each of them, and Python programs send the defaults of their own
    version, which override the defaults of templates and groups."""
    for field in schema.get("properties", {}).values():
        default = field.pop("default", None)
        if default not in (None, [], {}, ""):
            text = field.get("description", "").rstrip()
            field["description"] = f"{text} Default: `{default}`.".lstrip()


def _references(schema: Any) -> list[str]:
    """Names of the schemas to which a schema refers."""
    if isinstance(schema, list):
        return [name for part in schema for name in _references(part)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"].rpartition("/")[2]] if "$ref" in schema else []
    return own + [name for part in schema.values() for name in _references(part)]


def path_of(row: Route) -> str:
    """The route's path as written in the document."""
    return _PART.sub(r"{\1}", row.path)


def _operation(row: Route, schemas: Schemas, examples: Examples) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": getattr(row.handler, "__name__", row.summary),
        "summary": row.summary,
        "description": _description(row),
        "tags": [row.tag],
        "security": [] if row.access == "open" else [{"key": []}, {"console": []}],
        "parameters": [*_path_parameters(row), *_query_parameters(row), *_header_parameters(row)],
        "responses": {
            str(row.status): _response(row, schemas, examples),
            **{
                str(status): {"$ref": "#/components/responses/problem"}
                for status in problem_statuses(row)
            },
        },
    }
    if row.body is not None:
        schema = schemas[row.body, "validation"]
        body = {"schema": schema, "example": row.body.EXAMPLE}
        operation["requestBody"] = {"required": True, "content": {"application/json": body}}
    elif row.takes:
        body = {"schema": {"type": "string", "format": "binary"}}
        operation["requestBody"] = {"required": True, "content": {row.takes: body}}

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
    if row.takes:
        found |= {400, 408, 411}
    if _PART.search(row.path):
        found |= {404, 405}
    if row.versioned:
        found.add(412)

    return sorted((found | set(row.also)) - {row.status})


def _response(row: Route, schemas: Schemas, examples: Examples) -> dict[str, Any]:
    response: dict[str, Any] = {"description": HTTPStatus(row.status).phrase}
    if isinstance(row.returns, str):
        schema: dict[str, Any] = {"type": "object" if row.returns.endswith("json") else "string"}
        response["content"] = {row.returns: {"schema": schema}}
        if row.returns in _TEXTS:
            response["content"][row.returns]["example"] = _TEXTS[row.returns]
    else:
        schema = schemas[row.returns, "serialization"]
        content = {"schema": schema, "example": examples.of(schema)}
        response["content"] = {"application/json": content}

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
