"""Listings over HTTP: every listing has pages, sort orders and a bound, and its pages together form
the whole list."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from moorage.common.model.errors import InvalidInput
from moorage.common.model.group_options import GroupOptions, QuotaLimits
from moorage.common.model.paging import MAX_LIMIT, Paging
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.templates import TemplateSpec
from moorage.common.views.identity import ProjectSpec, UserSpec
from moorage.manager.api.http.openapi import describe
from moorage.manager.api.routes import ROUTES
from moorage.manager.store import Store
from tests.ssh_signing import SshSigner
from tests.store.conftest import FakeAgent
from tests.store.tenancy_harness import ROOT, Api, serve

# Routes that return items without pages, each with the bound of its list.
WHOLE = {
    "/v1/sessions/{ref}/code-kernels": "the kernelspecs of one session",
    "/v1/sessions/{ref}/apps": "the ports of one specification",
    "/v1/workspaces": "asked of the agents at each call",
    "/v1/stats/sessions": "a snapshot with a limit of its own",
    "/v1/stats/agents": "a snapshot",
    "/v1/limits": "the limits in use now",
    "/v1/budgets": "a few for each project, user and key",
    "/v1/prices": "a few for each unit",
    "/v1/runtimes": "a table of the program",
    "/v1/catalog": "a table of the program",
    "/v1/managers": "a few",
}
# Listings whose order is fixed: by time, or by position in a log.
FIXED_ORDER = {
    "/v1/scheduler/decisions",
    "/v1/scheduler/passes",
    "/v1/scheduler/runs",
    "/v1/usage",
    "/v1/occupancy",
}
# The test's listings, with the fields that make an item unique. Others need a running session.
KEYS = {
    "/v1/sessions": ("id",),
    "/v1/endpoints": ("name",),
    "/v1/agents": ("id",),
    "/v1/groups": ("name",),
    "/v1/keys": ("name",),
    "/v1/ssh-keys": ("fingerprint",),
    "/v1/users": ("name",),
    "/v1/projects": ("name",),
    "/v1/projects/vision/members": ("user",),
    "/v1/quotas": ("scope", "name"),
    "/v1/templates": ("name",),
    "/v1/templates/t1/versions": ("version",),
    "/v1/audit": ("id",),
    "/v1/sessions/s1/history": ("revision",),
    "/v1/endpoints/e1/revisions": ("revision",),
}
DOCUMENT = describe(ROUTES, "1")


def listings() -> dict[str, dict[str, Any]]:
    """The parameters of every route that returns a list, by path."""
    found = {}
    for path, operations in DOCUMENT["paths"].items():
        answer = operations.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
        ref = answer.get("application/json", {}).get("schema", {}).get("$ref", "")
        schema = DOCUMENT["components"]["schemas"].get(ref.rpartition("/")[2], {})
        if "items" in schema.get("properties", {}):
            found[path] = {one["name"]: one["schema"] for one in operations["get"]["parameters"]}
    return found


def test_every_listing_has_pages_with_a_bound_and_an_order() -> None:
    found = listings()
    assert len(found) > 20
    for path, parameters in found.items():
        if path in WHOLE:
            continue

        assert {"cursor", "limit"} <= parameters.keys(), path
        assert parameters["limit"]["maximum"] == MAX_LIMIT, path
        if path not in FIXED_ORDER:
            sorts = set(parameters["sort"]["enum"])
            assert sorts == {f"-{one.removeprefix('-')}" for one in sorts} | {
                one.removeprefix("-") for one in sorts
            }, f"{path}: each order has both directions"
            assert parameters["sort"]["default"] in sorts


async def _fill(store: Store, api: Api) -> None:
    for number in range(5):
        await store.sessions.create(
            ROOT, SessionSpec.model_validate({"name": f"s{number}", "command": ["true"]})
        )
        await store.endpoints.create(
            ROOT, EndpointSpec(name=f"e{number}", engine="llamacpp", model="/m.gguf")
        )
        await store.groups.put(f"g{number}", GroupOptions(), actor="t")
        await store.users.create(ROOT, UserSpec(name=f"u{number}"))
        await store.projects.create(ROOT, ProjectSpec(name=f"p{number}"))
        await store.quotas.put(ROOT, "user", f"u{number}", QuotaLimits(sessions=1))
        await store.quotas.put(ROOT, "project", f"p{number}", QuotaLimits(sessions=1))
        spec = TemplateSpec(spec={"command": ["true"], "priority": number})
        await store.templates.put(ROOT, f"t{number}", spec, [], for_all=True)
        await store.templates.put(ROOT, "t1", spec, [], for_all=True)
        signer = SshSigner(number)
        challenge = json.loads((await api.call("admin", "GET", "/v1/ssh-keys/challenge"))[1])[
            "challenge"
        ]
        proof = {"challenge": challenge, "signature": signer.armored(challenge)}
        key = {"public_key": f"{signer.public_key} k{number}"} | proof
        assert (await api.call("admin", "POST", "/v1/ssh-keys", key))[0] == 201
        body = {"email": f"u{number}@example.com"}

        # an audit entry
        assert (await api.call("admin", "PATCH", f"/v1/users/u{number}", body))[0] == 200


async def _page(api: Api, path: str, **query: str) -> dict[str, Any]:
    status, text = await api.call("admin", "GET", f"{path}?{urlencode(query)}")
    assert status == 200, (path, query, text)
    page: dict[str, Any] = json.loads(text)
    return page


async def test_pages_together_are_the_whole_list_in_every_order(store: Store) -> None:
    async with serve(store) as api:
        await _fill(store, api)
        found = listings()
        for path, key in KEYS.items():
            template = path.replace("/s1/", "/{ref}/").replace("/vision/", "/{name}/")
            template = template.replace("/t1/", "/{name}/").replace("/e1/", "/{name}/")
            for sort in found[template]["sort"]["enum"]:
                whole = await _page(api, path, sort=sort, limit="1000")
                expected = [tuple(item[name] for name in key) for item in whole["items"]]
                assert len(set(expected)) == len(expected)
                assert whole["next"] is None
                walked: list[tuple[Any, ...]] = []
                cursor = None
                while True:
                    page = await _page(
                        api, path, sort=sort, limit="2", **({"cursor": cursor} if cursor else {})
                    )
                    walked += [tuple(item[name] for name in key) for item in page["items"]]
                    if (cursor := page["next"]) is None:
                        break

                assert walked == expected, (path, sort)
                field = sort.removeprefix("-")
                values = [item[field] for item in whole["items"]]
                assert values == sorted(values, reverse=sort.startswith("-")), (path, sort)


SEARCHED = ("/v1/sessions", "/v1/endpoints", "/v1/pipelines", "/v1/audit")


async def test_search_finds_parts_of_names_as_they_are_written(store: Store) -> None:
    async with serve(store) as api:
        for name in ("Train-a.b", "my-train-2", "train_x", "other"):
            spec = {"name": name, "command": ["true"], "resources": {"cpu": 1}}
            assert (await api.call("admin", "POST", "/v1/sessions", spec))[0] == 201
            steps = [{"name": "only", "spec": {"command": ["true"], "resources": {"cpu": 1}}}]
            body = {"name": f"p-{name}", "steps": steps}
            assert (await api.call("admin", "POST", "/v1/pipelines", body))[0] == 201

        async def found(path: str, text: str, **query: str) -> list[str]:
            page = await _page(api, path, search=text, limit="50", **query)
            return sorted(item["name"] for item in page["items"])

        assert await found("/v1/sessions", "TRAIN", status="PENDING") == [
            "Train-a.b",
            "my-train-2",
            "train_x",
        ]
        assert await found("/v1/sessions", "n_x") == ["train_x"], "an underscore is itself"
        assert await found("/v1/sessions", "%") == [], "and so is a percent sign"
        assert await found("/v1/sessions", "a.b", sort="name") == ["Train-a.b"]
        assert await found("/v1/pipelines", "P-oth") == ["p-other"]
        assert await found("/v1/audit", "N_X") == ["p-train_x"]
        first = await _page(api, "/v1/sessions", search="train", sort="name", limit="1")
        rest = await _page(
            api, "/v1/sessions", search="train", sort="name", cursor=first["next"], limit="50"
        )
        assert len(first["items"] + rest["items"]) == 3
        for path in SEARCHED:
            assert (await api.call("admin", "GET", f"{path}?search="))[0] == 422
            assert (await api.call("admin", "GET", f"{path}?search={'x' * 101}"))[0] == 422


async def test_items_that_come_and_go_between_pages_move_no_others(store: Store) -> None:
    for name in ("b", "d", "f", "h"):
        await store.users.create(ROOT, UserSpec(name=name))
    first = await store.users.page(ROOT, Paging(2, sort="name"))
    await store.users.create(ROOT, UserSpec(name="a"))  # before the page that was already read
    await store.users.create(ROOT, UserSpec(name="e"))
    rest = await store.users.page(ROOT, Paging(50, first.next, "name"))
    assert [view.name for view in (*first.items, *rest.items)] == ["b", "d", "e", "f", "h"]


@pytest.mark.parametrize(
    "cursor", ["x", "%00", "W10", "WyItbmFtZSIsImEiXQ", "WyJuYW1lIiwxXQ", "Ww", "A" * 3000]
)
async def test_what_no_page_gave_is_no_cursor(store: Store, cursor: str) -> None:
    async with serve(store) as api:
        for path in ("/v1/users", "/v1/sessions", "/v1/audit", "/v1/endpoints"):
            status, text = await api.call(
                "admin", "GET", f"{path}?sort=-{_field(path)}&cursor={cursor}"
            )
            assert status == 422, (path, text)
            assert "cursor" in json.loads(text)["detail"]


def _field(path: str) -> str:
    return "at" if path == "/v1/audit" else "created_at"


async def test_cursor_belongs_to_one_order(store: Store) -> None:
    for name in ("a", "b"):
        await store.users.create(ROOT, UserSpec(name=name))
    page = await store.users.page(ROOT, Paging(1, sort="name"))
    with pytest.raises(InvalidInput, match="sort='name', not '-created_at'"):
        await store.users.page(ROOT, Paging(1, page.next, "-created_at"))
    with pytest.raises(InvalidInput, match="'email' is not possible"):
        await store.users.page(ROOT, Paging(1, sort="email"))


async def test_filters(store: Store) -> None:
    async with serve(store) as api:
        await _fill(store, api)
        await api.call("admin", "PATCH", "/v1/users/u1", {"status": "disabled"})
        await api.call("admin", "DELETE", "/v1/groups/g1")
        for name in ("n1", "n2"):
            await FakeAgent(store, name).report()

        cases = {
            "/v1/users?status=disabled": ["u1"],
            "/v1/groups?retired=true": ["g1"],
            "/v1/quotas?scope=project": [f"p{n}" for n in range(5)],
            "/v1/keys?user=lead": ["lead"],
            "/v1/keys?project=speech&role=viewer": ["watcher"],
            "/v1/projects/vision/members?role=admin": ["lead"],
            "/v1/templates?project=vision": [],
            "/v1/sessions?user=ann": [],
            "/v1/endpoints?project=vision": [],
            "/v1/agents?status=LOST": [],
            "/v1/agents?resource_group=default&status=ALIVE": ["n1", "n2"],
            "/v1/agents?resource_group=g2": [],
        }
        for path, expected in cases.items():
            found = (await _page(api, *_split(path)[:1], **_split(path)[1]))["items"]
            names = [one.get("name") or one.get("user") or one.get("id") for one in found]
            assert names == expected, path


def _split(path: str) -> tuple[str, dict[str, str]]:
    plain, _, query = path.partition("?")
    return plain, dict(part.split("=") for part in query.split("&"))
