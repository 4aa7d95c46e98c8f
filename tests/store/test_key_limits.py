"""API key limits, through the API: scopes, roles, memberships, rotation, and the last
administrator."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from moorage.common.model.group_options import GroupOptions
from moorage.manager.store import Store

from .tenancy_harness import serve


async def test_limits_of_keys_projects_and_groups_are_enforced(store: Store) -> None:
    await store.groups.put("small", GroupOptions(images=["registry/*"]), actor="root")
    async with serve(store) as api:

        async def create(key: str, **fields: Any) -> int:
            body = {"command": ["x"], **fields}
            for path in ("/v1/sessions/plan", "/v1/sessions"):
                status, _ = await api.call(key, "POST", path, body)
            model = {"name": f"m{len(statuses)}", "probe": {}, "replicas": 0}
            status_of_endpoint, _ = await api.call(key, "POST", "/v1/endpoints", body | model)
            assert status_of_endpoint == status
            statuses.append(status)
            return status

        statuses: list[int] = []
        limits = {"name": "limited", "resource_groups": ["small"], "max_priority": 5}
        _, text = await api.call("ann", "POST", "/v1/keys", limits)
        api.keys["limited"] = json.loads(text)["secret"]
        assert await create("limited", resource_group="small", priority=5) == 201
        assert await create("limited", resource_group="small", priority=6) == 403
        assert await create("limited", priority=5) == 404
        image = {"runtime": "docker", "resource_group": "small", "image": "registry/app"}
        assert await create("ann", **image) == 201
        assert await create("ann", **(image | {"image": "other/app"})) == 403
        several = {"command": ["x"], "name": "several", "probe": {}, "replicas": 0, "priority": 5}
        for groups, key, more, expected in (
            (["small", "default"], "limited", {}, 404),
            (["default", "small"], "ann", image | {"image": "other/app"}, 403),
            (["small"], "limited", {}, 201),
        ):
            body = several | more | {"resource_groups": groups}
            assert (await api.call(key, "POST", "/v1/endpoints", body))[0] == expected

        patch = {"resource_groups": ["small", "default"]}
        assert (await api.call("limited", "PATCH", "/v1/endpoints/several", patch))[0] == 404
        _, groups = await api.call("limited", "GET", "/v1/groups")
        assert [one["name"] for one in json.loads(groups)["items"]] == ["small"]
        assert (await api.call("limited", "GET", "/v1/groups/default"))[0] == 404

        for method, path, body in (
            ("POST", "/v1/keys", {"name": "wider"}),
            ("PATCH", "/v1/keys/limited", {"max_priority": None}),
            ("POST", "/v1/keys/limited/rotate", {}),
        ):
            assert (await api.call("limited", method, path, body))[0] == 403

        open_to_all = {"max_priority": {"member": 100}}
        assert (await api.call("admin", "PUT", "/v1/groups/default", open_to_all))[0] == 200
        assert (await api.call("admin", "PATCH", "/v1/projects/vision", {"max_priority": 20}))[
            0
        ] == 200
        assert await create("ann", priority=21) == 403
        assert await create("bob", priority=21) == 201


async def test_scopes_of_keys_are_enforced(store: Store) -> None:
    async with serve(store) as api:
        given = {"reads": "sessions:read", "writes": "sessions:write", "asks": "models:use"}
        for name, scopes in ((name, [scope]) for name, scope in given.items()):
            _, text = await api.call("ann", "POST", "/v1/keys", {"name": name, "scopes": scopes})
            api.keys[name] = json.loads(text)["secret"]

        for name in ("reads", "writes", "asks"):
            assert ((await api.call(name, "GET", "/v1/sessions"))[0] == 200) is (name == "reads")
            status, _ = await api.call(name, "POST", "/v1/sessions", {"command": ["x"]})
            assert (status == 201) is (name == "writes")
            assert (await api.call(name, "GET", "/v1/keys"))[0] == 403


async def test_membership_bounds_its_keys_at_once(store: Store) -> None:
    async with serve(store) as api:
        path = "/v1/projects/vision/members/ann"
        assert (await api.call("ann", "POST", "/v1/sessions", {"command": ["x"]}))[0] == 201
        assert (await api.call("lead", "PUT", path, {"role": "viewer"}))[0] == 200
        assert (await api.call("ann", "POST", "/v1/sessions", {"command": ["x"]}))[0] == 403
        assert (await api.call("ann", "GET", "/v1/sessions"))[0] == 200
        assert (await api.call("lead", "DELETE", path))[0] == 200
        assert (await api.call("ann", "GET", "/v1/sessions"))[0] == 401
        assert (await api.call("admin", "PATCH", "/v1/users/bob", {"status": "disabled"}))[0] == 200
        assert (await api.call("bob", "GET", "/v1/sessions"))[0] == 401
        assert (await api.call("admin", "PATCH", "/v1/projects/speech", {"status": "disabled"}))[
            0
        ] == 200
        assert (await api.call("boss", "GET", "/v1/sessions"))[0] == 401


async def test_rotated_key_is_valid_until_its_grace_ends(store: Store) -> None:
    async with serve(store) as api:
        old = api.keys["ann"]
        _, text = await api.call("ann", "POST", "/v1/keys/ann/rotate", {"grace_s": 3600})
        api.keys |= {"ann": json.loads(text)["secret"], "old": old}
        for key in ("ann", "old"):
            assert (await api.call(key, "GET", "/v1/sessions"))[0] == 200

        hashes = {hashlib.sha256(api.keys[key].encode()).hexdigest() for key in ("ann", "old")}
        assert hashes <= {grant.sha256 for grant in await store.keys.grants()}
        _, text = await api.call("ann", "POST", "/v1/keys/ann/rotate", {})
        for key in ("ann", "old"):
            assert (await api.call(key, "GET", "/v1/sessions"))[0] == 401

        api.keys["ann"] = json.loads(text)["secret"]
        assert (await api.call("ann", "GET", "/v1/sessions"))[0] == 200


async def test_last_administrator_stays(store: Store) -> None:
    async with serve(store) as api:
        later = {"expires_at": "2100-01-01T00:00:00Z"}
        for method, path, body in (
            ("PATCH", "/v1/users/root", {"status": "disabled"}),
            ("PATCH", "/v1/users/root", {"platform_role": "auditor"}),
            ("PATCH", "/v1/keys/admin", later),
            ("DELETE", "/v1/keys/admin", None),
        ):
            assert (await api.call("admin", method, path, body))[0] == 409, (method, path, body)

        assert (await api.call("admin", "POST", "/v1/keys", {"name": "root2", "role": "admin"}))[
            0
        ] == 201
        assert (await api.call("admin", "PATCH", "/v1/users/root", {"status": "disabled"}))[
            0
        ] == 200
