"""OpenAPI document: complete, consistent, and equal to the route table."""

from __future__ import annotations

import inspect
import json
import pkgutil
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from importlib import import_module
from typing import Any, cast, get_args, get_type_hints

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ValidationError

from moorage.common.model.spec import SessionSpec
from moorage.common.views.resources import Problem
from moorage.manager import api
from moorage.manager.api.http.openapi import describe, path_of
from moorage.manager.api.http.route import Route, by_precedence, route
from moorage.manager.api.http.tags import TAGS
from moorage.manager.api.routes import ROUTES
from moorage.sdk.transport import read_answer

DOCUMENT: dict[str, Any] = describe(ROUTES, "1.2.3")

# With which the name of an operation starts.
VERBS = {
    *("answer", "archive", "assign", "begin", "change", "complete", "cordon", "correct", "create"),
    *(
        "delete",
        "draw",
        "exec",
        "execute",
        "explain",
        "extend",
        "finish",
        "follow",
        "forget",
        "get",
    ),
    *("interrupt", "join", "link", "list", "plan", "promote", "put", "release", "reload", "remove"),
    *("requeue", "resume", "suspend"),
    *(
        "rename",
        "restart",
        "restore",
        "resume",
        "retire",
        "retry",
        "revoke",
        "rotate",
        "scale",
        "set",
        "sign",
    ),
    *("start", "stop", "stream", "suspend", "switch", "test", "uncordon", "undo", "unlink"),
    *("update", "who"),
}

EXPECTED = {
    "/v1/sessions/plan": {"post"},
    "/v1/pipelines/plan": {"post"},
    "/v1/templates/{name}/sessions/plan": {"post"},
    "/v1/sessions": {"get", "post"},
    "/v1/sessions/{ref}": {"get", "patch", "delete"},
    "/v1/sessions/{ref}/stop": {"post"},
    "/v1/sessions/stop": {"post"},
    "/v1/sessions/{ref}/code-kernels": {"get"},
    "/v1/sessions/{ref}/code-kernels/{language}/restart": {"post"},
    "/v1/sessions/{ref}/exec": {"get"},
    "/v1/sessions/{ref}/executions": {"post"},
    "/v1/sessions/{ref}/executions/completions": {"post"},
    "/v1/sessions/{ref}/executions/{run_id}": {"get"},
    "/v1/sessions/{ref}/executions/{run_id}/events": {"get"},
    "/v1/sessions/{ref}/executions/{run_id}/input": {"post"},
    "/v1/sessions/{ref}/executions/{run_id}/interrupt": {"post"},
    "/v1/sessions/{ref}/extend": {"post"},
    "/v1/sessions/{ref}/files": {"get"},
    "/v1/sessions/{ref}/files/content": {"get", "put"},
    "/v1/sessions/{ref}/history": {"get"},
    "/v1/sessions/{ref}/idle": {"get"},
    "/v1/sessions/{ref}/reload": {"post"},
    "/v1/sessions/{ref}/requeue": {"post"},
    "/v1/sessions/{ref}/resume": {"post"},
    "/v1/sessions/{ref}/suspend": {"post"},
    "/v1/sessions/{ref}/why": {"get"},
    "/v1/sessions/{ref}/tasks": {"get"},
    "/v1/sessions/{ref}/tasks/summary": {"get"},
    "/v1/sessions/{ref}/tasks/retry": {"post"},
    "/v1/sessions/{ref}/logs": {"get"},
    "/v1/sessions/{ref}/apps": {"get"},
    "/v1/sessions/{ref}/apps/{app}/access-tokens": {"get", "post"},
    "/v1/sessions/{ref}/apps/{app}/access-tokens/{id}": {"delete"},
    "/v1/workspaces": {"get"},
    "/v1/workspaces/{ref}": {"delete"},
    "/v1/endpoints": {"get", "post"},
    "/v1/endpoints/{name}": {"get", "patch", "delete"},
    "/v1/endpoints/{name}/decisions": {"get"},
    "/v1/endpoints/{name}/load": {"get"},
    "/v1/endpoints/{name}/revisions": {"get"},
    "/v1/endpoints/{name}/rollout": {"get"},
    "/v1/endpoints/{name}/rollout/undo": {"post"},
    "/v1/endpoints/{name}/rollout/promote": {"post"},
    "/v1/endpoints/{name}/scale": {"post"},
    "/v1/agents": {"get"},
    "/v1/agents/{id}": {"get", "delete"},
    "/v1/agents/{id}/cordon": {"put", "delete"},
    "/v1/agents/{id}/history": {"get"},
    "/v1/agents/{id}/load": {"get"},
    "/v1/agents/{id}/stats": {"get"},
    "/v1/sessions/{ref}/stats": {"get"},
    "/v1/stats/agents": {"get"},
    "/v1/stats/sessions": {"get"},
    "/v1/runtimes": {"get"},
    "/v1/groups": {"get", "post"},
    "/v1/groups/{name}": {"get", "put", "patch", "delete"},
    "/v1/group-aliases/{name}": {"delete"},
    "/v1/agents/{id}/group": {"put"},
    "/v1/secrets": {"get"},
    "/v1/secrets/{name}": {"put", "delete"},
    "/v1/pipelines": {"get", "post"},
    "/v1/pipelines/{ref}": {"get"},
    "/v1/pipelines/{ref}/graph.svg": {"get"},
    "/v1/calendar": {"get"},
    "/v1/cron-jobs": {"get", "post"},
    "/v1/cron-jobs/plan": {"post"},
    "/v1/cron-jobs/{ref}": {"get", "put", "delete"},
    "/v1/cron-jobs/{ref}/resume": {"post"},
    "/v1/cron-jobs/{ref}/run": {"post"},
    "/v1/cron-jobs/{ref}/runs": {"get"},
    "/v1/cron-jobs/{ref}/suspend": {"post"},
    "/v1/pipelines/{ref}/stop": {"post"},
    "/v1/pipelines/{ref}/retry": {"post"},
    "/v1/templates": {"get"},
    "/v1/templates/{name}": {"get", "put", "delete"},
    "/v1/templates/{name}/versions": {"get"},
    "/v1/templates/{name}/sessions": {"post"},
    "/v1/events": {"get"},
    "/v1/overview": {"get"},
    "/v1/occupancy": {"get"},
    "/v1/occupancy/history": {"get"},
    "/v1/qos": {"get"},
    "/v1/qos/{name}": {"get", "put", "delete"},
    "/v1/quotas": {"get"},
    "/v1/quotas/{scope}/{name}": {"get", "put", "delete"},
    "/v1/usage": {"get"},
    "/v1/usage/corrections": {"post"},
    "/v1/budgets": {"get"},
    "/v1/budgets/{scope}/{period}/{unit}/{name}": {"put", "delete"},
    "/v1/prices": {"get", "put"},
    "/v1/limits": {"get"},
    "/v1/catalog": {"get"},
    "/v1/catalog/{model}": {"get"},
    "/v1/metrics": {"get"},
    "/v1/scheduler/decisions": {"get"},
    "/v1/scheduler/passes": {"get"},
    "/v1/scheduler/runs": {"get"},
    "/v1/ssh-keys": {"get", "post"},
    "/v1/subscriptions": {"get", "post"},
    "/v1/subscriptions/{id}": {"get", "delete", "patch"},
    "/v1/subscriptions/{id}/deliveries": {"get"},
    "/v1/subscriptions/{id}/rotate": {"post"},
    "/v1/subscriptions/{id}/test": {"post"},
    "/v1/ssh-keys/challenge": {"get"},
    "/v1/ssh-keys/{name}": {"get", "delete"},
    "/v1/keys": {"get", "post"},
    "/v1/keys/{name}": {"get", "patch", "delete"},
    "/v1/keys/{name}/rotate": {"post"},
    "/v1/audit": {"get"},
    "/v1/session": {"get", "post", "put", "delete"},
    "/v1/session/password": {"put"},
    "/v1/session/ways": {"get"},
    "/v1/session/oidc": {"get"},
    "/v1/session/oidc/callback": {"get"},
    "/v1/users/{name}/password": {"put", "delete"},
    "/v1/users/{name}/subject": {"put", "delete"},
    "/v1/users": {"get", "post"},
    "/v1/users/{name}": {"get", "patch", "delete"},
    "/v1/users/{name}/archive": {"post"},
    "/v1/users/{name}/restore": {"post"},
    "/v1/projects": {"get", "post"},
    "/v1/projects/{name}": {"get", "patch", "delete"},
    "/v1/projects/{name}/archive": {"post"},
    "/v1/projects/{name}/restore": {"post"},
    "/v1/projects/{name}/members": {"get"},
    "/v1/projects/{name}/members/{user}": {"put", "delete"},
    "/v1/join-tokens": {"get", "post"},
    "/v1/join-tokens/{id}": {"delete"},
    "/v1/join": {"post"},
    "/v1/ca": {"get"},
    "/v1/ca/rotate": {"post"},
    "/v1/peers": {"get"},
    "/v1/managers": {"get"},
    "/v1/peers/{kind}/{name}": {"delete"},
    "/livez": {"get"},
    "/readyz": {"get"},
    "/metrics": {"get"},
    "/version": {"get"},
    "/openapi.json": {"get"},
    "/docs": {"get"},
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


def test_every_reference_resolves() -> None:
    found = set(references(DOCUMENT))
    assert "#/components/schemas/SessionSpec" in found
    for reference in found:
        place: Any = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
        assert isinstance(place, dict)


def test_operation_ids_are_unique_and_path_parameters_declared() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(names) == len(set(names))
    for path, _, operation in operations():
        declared = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
        assert declared == set(re.findall(r"\{(\w+)\}", path))


def test_only_service_routes_joining_and_signing_in_need_no_key() -> None:
    open_paths = {
        (path, method) for path, method, operation in operations() if operation["security"] == []
    }
    # A joining node has no key, so its join token signs the request.
    service = {(path, "get") for path in EXPECTED if not path.startswith("/v1/")}
    assert open_paths == service | {("/v1/join", "post"), ("/v1/session", "post")} | {
        (path, "get")
        for path in EXPECTED
        if path.startswith(("/v1/session/oidc", "/v1/session/ways"))
    }


def test_schemas_match_the_validated_models() -> None:
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
        "search",
        "endpoint",
        "pipeline",
        "index",
        "elements",
        "user",
        "project",
        "selector",
        "sort",
    }
    (limit,) = [p for p in listing["parameters"] if p["name"] == "limit"]
    assert (limit["schema"]["minimum"], limit["schema"]["maximum"], limit["schema"]["default"]) == (
        1,
        1000,
        50,
    )


@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/endpoints"])
def test_creation_has_a_location_header(path: str) -> None:
    assert "Location" in DOCUMENT["paths"][path]["post"]["responses"]["201"]["headers"]


def test_budget_warnings_are_headers_of_what_a_key_asks_for() -> None:
    told = {
        (path, method)
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
        for response in operation["responses"].values()
        if "X-Moorage-Budget-Warning" in response.get("headers", {})
    }
    assert {("/v1/sessions", "get"), ("/v1/sessions", "post"), ("/v1/usage", "get")} <= told
    assert not told & {("/healthz", "get"), ("/v1/events", "get")}


def test_each_operation_has_one_answer() -> None:
    """Generated clients give an operation the type of its first answer."""
    for path, method, operation in operations():
        good = [status for status in operation["responses"] if status < "400"]
        assert len(good) == 1, (path, method)

    plan = DOCUMENT["paths"]["/v1/sessions/plan"]["post"]["responses"]["200"]
    assert plan["content"]["application/json"]["schema"]["$ref"].endswith("/PlanView")


def test_names_are_public_words() -> None:
    """Names of schemas and operations become names in generated clients."""
    for name, schema in DOCUMENT["components"]["schemas"].items():
        assert schema["title"] == name
        assert name.lower() not in {
            field.replace("_", "") for field in schema.get("properties", {})
        }
        assert re.fullmatch(r"([A-Z][a-z]+|I)+", name), name
    for _, _, operation in operations():
        verb, *subject = operation["operationId"].split("_")
        assert verb in VERBS, f"{operation['operationId']}: a verb and its object"
        assert subject or verb in ("complete", "execute"), operation["operationId"]


def test_tags_have_descriptions_and_the_server_is_named() -> None:
    used = {tag for _, _, operation in operations() for tag in operation["tags"]}
    assert [tag["name"] for tag in DOCUMENT["tags"]] == sorted(used) == sorted(TAGS)
    assert all(tag["description"].endswith(".") for tag in DOCUMENT["tags"])
    assert DOCUMENT["servers"][0]["url"] == "/"


@pytest.mark.parametrize("row", ROUTES, ids=lambda row: f"{row.method} {row.path}")
def test_answers_have_examples_that_their_models_accept(row: Route) -> None:
    """An example is exactly what the manager would send for it."""
    described = DOCUMENT["paths"][path_of(row)][row.method.lower()]["responses"][str(row.status)]
    [(media_type, content)] = described["content"].items()
    if isinstance(row.returns, str):
        text = media_type in ("text/plain", "text/event-stream")
        assert isinstance(content.get("example"), str) == text
        return

    example = content["example"]
    assert row.returns.model_validate(example).model_dump(mode="json") == example
    Draft202012Validator(content["schema"] | {"components": DOCUMENT["components"]}).validate(
        example
    )


def objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from objects(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from objects(inner)


@pytest.mark.parametrize(
    "row",
    [row for row in ROUTES if not isinstance(row.returns, str)],
    ids=lambda row: f"{row.method} {row.path}",
)
def test_clients_read_answers_with_fields_of_a_newer_manager(row: Route) -> None:
    """At any depth: parts of a response may be models of requests, which refuse unknown fields."""
    responses = DOCUMENT["paths"][path_of(row)][row.method.lower()]["responses"]
    example = responses[str(row.status)]["content"]["application/json"]["example"]
    answers = cast(type[BaseModel], row.returns)
    for number, _ in enumerate(objects(example)):
        answer = deepcopy(example)
        [*objects(answer)][number]["tomorrow"] = 1
        # In a map it is an entry, whose type may be wrong, and not a field.
        assert "extra_forbidden" not in problems_of(answers, answer), answer


def problems_of(model: type[BaseModel], answer: dict[str, Any]) -> set[str]:
    try:
        read_answer(model, json.dumps(answer).encode())
    except ValidationError as error:
        return {found["type"] for found in error.errors()}
    return set()


def test_problems_have_an_example() -> None:
    [content] = DOCUMENT["components"]["responses"]["problem"]["content"].values()
    assert Problem.model_validate(content["example"]).code == "not-found"


def test_fields_of_bodies_leave_their_defaults_to_the_server() -> None:
    """Otherwise generated programs have to name them all, or send them all."""
    left = [
        content["application/json"]["schema"]
        for _, _, operation in operations()
        if "application/json" in (content := operation.get("requestBody", {}).get("content", {}))
    ]
    names = {name for schema in left for name in references(schema)}
    seen = set[str]()
    while names - seen:
        name = (names - seen).pop()
        seen.add(name)
        schema = DOCUMENT["components"]["schemas"][name.rpartition("/")[2]]
        names |= set(references(schema))
        assert not [n for n, part in schema.get("properties", {}).items() if "default" in part]

    spec = DOCUMENT["components"]["schemas"]["SessionSpec"]["properties"]
    assert spec["priority"]["description"].endswith("Default: `10`.")
    assert len(seen) > 30


@pytest.mark.parametrize("row", ROUTES, ids=lambda row: f"{row.method} {row.path}")
def test_route_declares_the_types_of_its_handler(row: Route) -> None:
    hints = get_type_hints(row.handler)
    body, query = get_args(hints["call"])
    assert (body, query) == (row.body or type(None), row.query)
    # answers 200 or 503 with the same model; sends browsers elsewhere
    if isinstance(row.returns, str) or row.path in ("/readyz", "/"):
        assert issubclass(hints["return"], web.StreamResponse)
    else:
        assert hints["return"] == row.returns


def _handlers() -> Iterator[Callable[..., Any]]:
    """The API's public functions whose only parameter is the call of one route. Helpers accept any
    route's call: their models are ``Any``."""
    for found in pkgutil.walk_packages(api.__path__, f"{api.__name__}."):
        module = import_module(found.name)
        for name, function in vars(module).items():
            is_own = (
                inspect.iscoroutinefunction(function) and function.__module__ == module.__name__
            )
            if (
                not is_own
                or name.startswith("_")
                or [*inspect.signature(function).parameters] != ["call"]
            ):
                continue

            if get_args(get_type_hints(function)["call"]) != (Any, Any):
                yield function


def test_every_handler_declares_its_route_and_is_in_the_table() -> None:
    assert set(_handlers()) == {row.handler for row in ROUTES}


def test_route_needs_a_rule_of_access() -> None:
    with pytest.raises(TypeError, match="GET /v1/x: give either access or action"):
        route("GET", "/v1/x", "Get x", returns="text/plain")


async def test_each_path_leads_to_its_own_handler() -> None:
    """This also applies if a name contains slashes and ends like another route's path."""
    app = web.Application()
    for row in by_precedence(ROUTES):
        app.router.add_route(row.method, row.path, row.handler)  # type: ignore[arg-type]

    app.freeze()
    for row in ROUTES:
        for name in ("a", "a/b", "a/b/c/d"):
            path = re.sub(r"\{\w+\}", "one", re.sub(r"\{\w+:\.\+\}", name, row.path))
            resolved = await app.router.resolve(make_mocked_request(row.method, path))
            assert resolved.handler is row.handler, f"{row.method} {path}"
