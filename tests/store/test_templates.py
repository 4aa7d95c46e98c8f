"""Session templates in the database and over REST: versions, tenancy, bases, and sessions made from them."""

from __future__ import annotations

import json

import asyncpg
import pytest

from moorage.common.model.errors import NotFound
from moorage.common.model.templates import TemplateSpec
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store

from .tenancy_harness import serve

VISION = Scope.system("key:ann", Owner("ann", "vision"))
SPEECH = Scope.system("key:bob", Owner("bob", "speech"))


def template(command: str) -> TemplateSpec:
    return TemplateSpec.model_validate({"spec": {"command": [command]}})


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
    assert (await templates.put(VISION, "train", template("two"), [], for_all=False)).ref == "train@3"


async def test_other_order_of_keys_makes_no_version(store: Store) -> None:
    async def put(text: str) -> tuple[int, list[str]]:
        given = TemplateSpec.model_validate_json(text)
        view = await store.templates.put(VISION, "train", given, [], for_all=False)
        return view.version, list(view.template.parameters)

    first = (
        '{"parameters": {"zone": {"default": "a"}, "a": {"type": "integer"}}, "spec": {"x": [1, 2], "y": 1}}'
    )
    again = (
        '{"spec": {"y": 1, "x": [1, 2]}, "parameters": {"a": {"type": "integer"}, "zone": {"default": "a"}}}'
    )
    assert await put(first) == (1, ["zone", "a"])
    assert await put(again) == (1, ["zone", "a"]), "shown as it was written first"
    assert await put(again.replace("[1, 2]", "[2, 1]")) == (2, ["a", "zone"])


async def test_a_project_sees_its_own_templates_and_those_for_all(store: Store) -> None:
    templates = store.templates
    await templates.put(VISION, "shared", template("all"), [], for_all=True)
    await templates.put(VISION, "train", template("vision"), [], for_all=False)
    await templates.put(VISION, "shared", template("own"), [], for_all=False)
    assert [(one.name, one.project) for one in (await templates.page(SPEECH)).items] == [("shared", "")]
    assert [(one.name, one.project) for one in (await templates.page(VISION)).items] == [
        ("shared", "vision"),
        ("train", "vision"),
    ]
    with pytest.raises(NotFound):
        await templates.get(SPEECH, "train")


async def test_versions_of_two_owners_are_not_mixed(store: Store) -> None:
    """The template that a project names is its own, also by a version that only the one for all has."""
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
