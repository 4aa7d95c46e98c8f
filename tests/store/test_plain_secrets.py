"""Plaintext secrets in `env`: a warning on every path by which a specification arrives, and none of
them in output for other users."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from moorage.manager.api.routes import ROUTES
from moorage.manager.store import Store

from .tenancy_harness import Api, serve

PROGRAM: dict[str, Any] = {"command": ["x"]}
CRON: dict[str, Any] = {"cron": "0 0 1 1 *"}
MODEL = PROGRAM | {"name": "model", "probe": {}, "replicas": 0}
CHANGED = MODEL | {"name": "changed"}


def with_env(**env: str) -> dict[str, Any]:
    return PROGRAM | {"env": env}


def with_sub(**env: str) -> dict[str, Any]:
    return PROGRAM | {"cluster": {"size": 2, "sub": {"env": env}}}


def ways(env: dict[str, str]) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Requests with these variables, by the type of their body."""
    spec = with_env(**env)
    sub = with_sub(**env)
    of_template = {
        "name": "one",
        "template": "given",
        "parameters": {"value": env.get("API_TOKEN", "x")},
    }

    return {
        "SessionSpec": ("POST", "/v1/sessions", spec),
        "SessionSpec, cluster": ("POST", "/v1/sessions", sub),
        "TemplateSpec": ("PUT", "/v1/templates/new", {"spec": spec}),
        "TemplateSpec, cluster": ("PUT", "/v1/templates/new-cluster", {"spec": sub}),
        "TemplateSpec, main": (
            "PUT",
            "/v1/templates/main",
            {"spec": PROGRAM, "roles": {"main": {"env": env}}},
        ),
        "TemplateSpec, sub": (
            "PUT",
            "/v1/templates/sub",
            {"spec": PROGRAM, "roles": {"main": {}, "sub": {"env": env}}},
        ),
        "TemplateRun": ("POST", "/v1/templates/plain/sessions", {"overrides": {"env": env}}),
        "PipelineSpec": (
            "POST",
            "/v1/pipelines",
            {"name": "p", "steps": [{"name": "one", "spec": spec}]},
        ),
        "PipelineSpec, overrides": (
            "POST",
            "/v1/pipelines",
            {
                "name": "p",
                "steps": [{"name": "one", "template": "plain", "overrides": {"env": env}}],
            },
        ),
        "NewEndpoint": ("POST", "/v1/endpoints", MODEL | {"env": env}),
        "EndpointPatch": ("PATCH", "/v1/endpoints/changed", {"env": env}),
        "NewCronJob": ("POST", "/v1/cron-jobs", CRON | {"name": "new", "session": spec}),
        "CronJobSpec": ("PUT", "/v1/cron-jobs/changed", CRON | {"session": spec}),
        "GroupOptions": ("PUT", "/v1/groups/other", {"template_defaults": {"env": env}}),
        "NewGroup": (
            "POST",
            "/v1/groups",
            {"name": "new", "options": {"template_defaults": {"env": env}}},
        ),
    } | (
        {}
        if "API_TOKEN" not in env
        else {
            "TemplateRun, parameters": (
                "POST",
                "/v1/templates/given/sessions",
                {"parameters": of_template["parameters"]},
            ),
            "PipelineSpec, parameters": (
                "POST",
                "/v1/pipelines",
                {"name": "p", "steps": [of_template]},
            ),
        }
    )


def test_every_body_with_variables_is_tried() -> None:
    bodies = {one.body for one in ROUTES if one.body is not None}
    named = {body.__name__ for body in bodies if any(_has_env(body))}
    # No schema checks their fields, which are those of a session's specification.
    named |= {"TemplateRun", "GroupOptions", "NewGroup"}
    assert named == {way.partition(",")[0] for way in ways({})}


def _has_env(body: type[BaseModel]) -> Iterator[bool]:
    schema = body.model_json_schema()
    for one in (schema, *schema.get("$defs", {}).values()):
        yield "env" in one.get("properties", {})


async def _prepare(api: Api) -> None:
    given = {"parameters": {"value": {}}, "spec": with_env(API_TOKEN="{{ value }}")}
    for name, template in (("plain", {"spec": PROGRAM}), ("given", given)):
        assert (await api.call("admin", "PUT", f"/v1/templates/{name}", template))[0] == 200
    assert (await api.call("admin", "POST", "/v1/endpoints", CHANGED))[0] == 201
    job = CRON | {"name": "changed", "session": PROGRAM}
    assert (await api.call("admin", "POST", "/v1/cron-jobs", job))[0] == 201
    assert (await api.call("admin", "PUT", "/v1/groups/other", {}))[0] == 200


async def _warnings(api: Api, env: dict[str, str]) -> dict[str, str]:
    """What the answer on each path says about secrets."""
    found = {}
    for way, request in ways(env).items():
        status, text = await api.call("admin", *request)
        assert status < 300, (way, text)
        found[way] = " ".join(one for one in json.loads(text)["warnings"] if "secrets" in one)
    return found


async def test_each_way_warns_about_a_secret_and_says_how_to_store_it(store: Store) -> None:
    async with serve(store) as api:
        await _prepare(api)
        for way, told in (await _warnings(api, {"API_TOKEN": "hf_abc", "MODE": "fast"})).items():
            assert "API_TOKEN" in told, way
            assert "MODE" not in told, way
            assert "hf_abc" not in told, way
            assert "`moorage secrets set NAME`" in told, way
            assert '`"secret_env": {"API_TOKEN": "NAME"}`' in told, way
            assert "--secret API_TOKEN=NAME" in told, way


async def test_no_way_warns_about_other_variables(store: Store) -> None:
    async with serve(store) as api:
        await _prepare(api)
        found = await _warnings(
            api, {"MAX_TOKENS": "5", "PASSWORD_FILE_FORMAT": "", "MODE": "fast"}
        )
        assert set(found.values()) == {""}


async def test_defaults_of_a_group_show_no_secrets_to_those_who_do_not_set_them(
    store: Store,
) -> None:
    async with serve(store) as api:
        fields = with_env(API_TOKEN="hf_abc") | with_sub(DB_PASSWORD="s3cret")
        status, _ = await api.call(
            "admin", "PUT", "/v1/groups/default", {"template_defaults": fields}
        )
        assert status == 200

        for path in ("/v1/groups/default", "/v1/groups"):
            _, seen = await api.call("ann", "GET", path)
            assert '"API_TOKEN":"***"' in seen
            assert '"DB_PASSWORD":"***"' in seen
            _, kept = await api.call("admin", "GET", path)
            assert "hf_abc" in kept
            assert "s3cret" in kept


async def test_a_template_takes_no_mask_for_a_value(store: Store) -> None:
    """A user who edits the displayed specification would store the mask."""
    async with serve(store) as api:
        for body in (
            {"spec": with_env(API_TOKEN="***")},
            {"spec": with_sub(API_TOKEN="***")},
            {"spec": PROGRAM, "roles": {"main": {"env": {"API_TOKEN": "***"}}}},
        ):
            status, text = await api.call("ann", "PUT", "/v1/templates/train", body)
            assert (status, "the mask of a hidden value" in text) == (422, True), text


async def test_a_template_whose_variables_are_no_object_yet_is_shown(store: Store) -> None:
    async with serve(store) as api:
        body = {"parameters": {"all": {}}, "spec": PROGRAM | {"env": "{{ all }}"}}
        assert (await api.call("ann", "PUT", "/v1/templates/odd", body))[0] == 200
        assert (await api.call("ann", "GET", "/v1/templates/odd"))[0] == 200
