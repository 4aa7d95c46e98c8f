"""Session templates in the database and over REST: versions, tenancy, bases, and sessions made from
them."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

from moorage.common.model.errors import NotFound
from moorage.common.model.roles import Role
from moorage.common.model.templates import TemplateSpec
from moorage.common.views.keys import KeySpec
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store

from .tenancy_harness import ROOT, Api, serve

VISION = Scope.system("key:ann", Owner("ann", "vision"))
SPEECH = Scope.system("key:bob", Owner("bob", "speech"))


def template(command: str) -> TemplateSpec:
    return TemplateSpec.model_validate({"spec": {"command": [command]}})


@pytest.mark.usefixtures("owners")
async def test_versions_are_numbered_immutable_and_never_used_again(store: Store) -> None:
    templates = store.templates
    first = await templates.put(VISION, "train", template("one"), [], for_all=False)
    again = await templates.put(VISION, "train", template("one"), [], for_all=False)
    second = await templates.put(VISION, "train", template("two"), [], for_all=False)
    assert [first.ref, again.ref, second.ref] == ["train@1", "train@1", "train@2"]
    assert (await templates.get(VISION, "train", 1)).template == template("one")
    assert (await templates.get(VISION, "train")).ref == "train@2"
    assert [one.version for one in (await templates.versions(VISION, "train")).items] == [2, 1]
    with pytest.raises(asyncpg.RaiseError, match="never changes"):
        await store.database.fetch("UPDATE templates SET body = '{}'")

    await templates.delete(VISION, "train", for_all=False)
    with pytest.raises(NotFound):
        await templates.get(VISION, "train")

    assert (
        await templates.put(VISION, "train", template("two"), [], for_all=False)
    ).ref == "train@3"


@pytest.mark.usefixtures("owners")
async def test_other_order_of_keys_makes_no_version(store: Store) -> None:
    async def put(text: str) -> tuple[int, list[str]]:
        given = TemplateSpec.model_validate_json(text)
        view = await store.templates.put(VISION, "train", given, [], for_all=False)
        return view.version, list(view.template.parameters)

    first = (
        '{"parameters": {"zone": {"default": "a"}, "a": {"type": "integer"}}, "spec": {"x": [1, 2], '
        '"y": 1}}'
    )
    again = (
        '{"spec": {"y": 1, "x": [1, 2]}, "parameters": {"a": {"type": "integer"}, "zone": {"default": '
        '"a"}}}'
    )
    assert await put(first) == (1, ["zone", "a"])
    assert await put(again) == (1, ["zone", "a"]), "shown as it was written first"
    assert await put(again.replace("[1, 2]", "[2, 1]")) == (2, ["a", "zone"])


@pytest.mark.usefixtures("owners")
async def test_a_project_sees_its_own_templates_and_those_for_all(store: Store) -> None:
    templates = store.templates
    await templates.put(VISION, "shared", template("all"), [], for_all=True)
    await templates.put(VISION, "train", template("vision"), [], for_all=False)
    await templates.put(VISION, "shared", template("own"), [], for_all=False)
    assert [(one.name, one.project) for one in (await templates.page(SPEECH)).items] == [
        ("shared", "")
    ]
    assert [(one.name, one.project) for one in (await templates.page(VISION)).items] == [
        ("shared", "vision"),
        ("train", "vision"),
    ]
    with pytest.raises(NotFound):
        await templates.get(SPEECH, "train")


@pytest.mark.usefixtures("owners")
async def test_versions_of_two_owners_are_not_mixed(store: Store) -> None:
    """A template name in a project refers to its own template, even with a version that only the
    global one has."""
    templates = store.templates
    for command in ("all 1", "all 2"):
        await templates.put(VISION, "train", template(command), [], for_all=True)

    await templates.put(VISION, "train", template("own"), [], for_all=False)
    assert [one.version for one in (await templates.versions(VISION, "train")).items] == [1]
    with pytest.raises(NotFound):
        await templates.get(VISION, "train", 2)

    assert [one.version for one in (await templates.versions(SPEECH, "train")).items] == [2, 1]
    await templates.delete(VISION, "train", for_all=False)
    assert (await templates.get(VISION, "train", 2)).project == ""


async def test_a_session_keeps_its_template_and_the_merged_specification(store: Store) -> None:
    async with serve(store) as api:
        body = {
            "parameters": {"n": {"type": "integer", "default": 1, "max": 3}},
            "spec": {"type": "batch", "command": ["echo", "{{ n }}"], "env": {"A": "1"}},
        }
        assert (await api.call("ann", "PUT", "/v1/templates/echo", body))[0] == 200
        run = {"parameters": {"n": 2}, "overrides": {"env": {"B": "2"}, "name": "echoed"}}
        status, text = await api.call("ann", "POST", "/v1/templates/echo/sessions", run)
        assert (status, json.loads(text).get("template")) == (201, "echo@1"), text
        await api.call("ann", "PUT", "/v1/templates/echo", {"spec": {"command": ["other"]}})
        kept = json.loads((await api.call("ann", "GET", "/v1/sessions/echoed"))[1])
        assert (kept["template"], kept["spec"]["command"]) == ("echo@1", ["echo", "2"])
        assert kept["spec"]["env"] == {"A": "1", "B": "2"}


async def test_what_is_wrong_with_a_template_is_said(store: Store) -> None:
    async with serve(store) as api:

        async def put(caller: str, name: str, body: dict[str, object]) -> tuple[int, str]:
            return await api.call(caller, "PUT", f"/v1/templates/{name}", body)

        plain = {"spec": {"command": ["x"]}}
        assert (await put("ann", "a", plain))[0] == 200
        assert (await put("ann", "b", {"base": "a"}))[0] == 200
        status, text = await put("ann", "a", {"base": "b"})
        assert (status, "based on itself: a on b@1 on a@1" in text) == (422, True), text
        assert (await put("ann", "c", {"base": "none"}))[0] == 404
        assert (await put("ann", "c", {"base": "a@x"}))[0] == 422
        assert (await put("ann", "c", {"roles": {"sub": {"command": ["x"]}}}))[0] == 422
        assert (await put("ann", "c?for_all=true", plain))[0] == 403
        assert (await put("viewer", "c", plain))[0] == 403
        assert (await api.call("bob", "GET", "/v1/templates/a"))[0] == 404
        for body in ({"overrides": {"colour": 1}}, {"parameters": {"no": 1}}, {"version": 0}):
            assert (await api.call("ann", "POST", "/v1/templates/a/sessions", body))[0] == 422

        assert (await api.call("ann", "POST", "/v1/templates/a/sessions", {"version": 9}))[0] == 404


async def put(api: Api, caller: str, name: str, body: dict[str, Any]) -> str:
    """The current version."""
    status, text = await api.call(caller, "PUT", f"/v1/templates/{name}", body)
    assert status == 200, text
    view = json.loads(text)
    return f"{view['name']}@{view['version']}"


async def start(api: Api, caller: str, name: str) -> dict[str, Any]:
    status, text = await api.call(caller, "POST", f"/v1/templates/{name}/sessions", {})
    assert status == 201, text
    made: dict[str, Any] = json.loads(text)
    return made


async def test_what_a_member_wrote_runs_isolated_whoever_starts_it(store: Store) -> None:
    """Until an administrator sets the same value; then it is the administrator's."""
    async with serve(store) as api:
        spec = KeySpec(name="root-vision", user="root", project="vision", role=Role.ADMIN)
        api.keys["root"] = (await store.keys.create(ROOT, spec)).secret
        body = {"spec": {"command": ["id"]}}
        assert await put(api, "root", "own", body) == "own@1"
        assert await put(api, "ann", "train", body) == "train@1"
        assert await put(api, "root", "on-members", {"base": "train"}) == "on-members@1"
        assert await put(api, "root", "on-own", {"base": "own"}) == "on-own@1"
        made = {
            (caller, name): await start(api, caller, name)
            for caller in ("root", "ann")
            for name in ("own", "train", "on-members", "on-own")
        }
        free = {of for of, session in made.items() if not session["isolated"]}
        assert free == {("root", "own"), ("root", "on-own")}
        stored = await store.database.fetch("SELECT id FROM sessions WHERE isolated")
        assert {str(row["id"]) for row in stored} == {
            s["id"] for of, s in made.items() if of not in free
        }
        told = {of for of, session in made.items() if "runs isolated" in str(session["warnings"])}
        assert told == {("root", "train"), ("root", "on-members")}

        assert await put(api, "ann", "own", body) == "own@1", "nothing of it has changed"
        assert await put(api, "root", "train", body) == "train@2"
        assert not (await start(api, "root", "train"))["isolated"]
        assert await put(api, "ann", "train", {"spec": {"command": ["other"]}}) == "train@3"
        assert (await start(api, "root", "train"))["isolated"]


async def test_steps_of_a_members_template_run_isolated_also_when_they_are_retried(
    store: Store,
) -> None:
    async with serve(store) as api:
        spec = KeySpec(name="root-vision", user="root", project="vision", role=Role.ADMIN)
        api.keys["root"] = (await store.keys.create(ROOT, spec)).secret
        await put(api, "ann", "train", {"spec": {"command": ["id"]}})
        await put(api, "root", "own", {"spec": {"command": ["id"]}})
        plain = {"command": ["id"]}
        steps = [
            {"name": "members", "template": "train"},
            {"name": "own", "template": "own"},
            {"name": "plain", "spec": plain},
        ]
        status, text = await api.call(
            "root", "POST", "/v1/pipelines", {"name": "all", "steps": steps}
        )
        assert status == 201, text

        async def isolated() -> list[str]:
            rows = await store.database.fetch(
                "SELECT p.step, p.run FROM pipeline_steps p JOIN sessions s ON s.id = p.session_id "
                "WHERE s.isolated ORDER BY p.run"
            )
            return [f"{row['step']} {row['run']}" for row in rows]

        assert await isolated() == ["members 1"]
        await store.database.fetch(
            "UPDATE sessions SET status = 'CANCELLED', reason = 'user-requested'"
        )
        status, text = await api.call("root", "POST", "/v1/pipelines/all/retry")
        assert status == 202, text
        assert await isolated() == ["members 1", "members 2"]
