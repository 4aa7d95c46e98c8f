"""Users' public keys: what each key permits, until when, and what Postgres itself refuses."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

from moorage.common.model.roles import Role
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store
from tests.ssh_signing import SshSigner

from .tenancy_harness import CALLERS, ROOT, Api, serve

ANN = next(one for one in CALLERS if one.name == "ann")


def key(number: int, answer: str) -> dict[str, str]:
    """The body of a registration. ``answer``: the answer that contains the challenge."""
    signer = SshSigner(number)
    challenge = json.loads(answer)["challenge"]
    signature = signer.armored(challenge)
    public_key = f"{signer.public_key} key-{number}"
    return {"public_key": public_key, "challenge": challenge, "signature": signature}


async def proved(api: Api, caller: str, number: int) -> dict[str, str]:
    return key(number, (await api.call(caller, "GET", "/v1/ssh-keys/challenge"))[1])


async def add(api: Api, caller: str, number: int) -> dict[str, Any]:
    status, text = await api.call(caller, "POST", "/v1/ssh-keys", await proved(api, caller, number))
    assert status == 201, text
    made: dict[str, Any] = json.loads(text)
    return made


async def test_a_key_acts_as_the_api_key_that_registered_it_and_ends_with_it(store: Store) -> None:
    async with serve(store) as api:
        made = await add(api, "ann", 1)
        assert (made["name"], made["user"], made["key"], made["project"]) == (
            "key-1",
            "ann",
            "ann",
            "vision",
        )
        print_ = made["fingerprint"]
        found = await store.ssh_keys.find(print_, "vision")
        assert found is not None
        assert (found.role, found.owner.user, found.owner.project) == (Role.MEMBER, "ann", "vision")
        assert Scope.of(found).actor == "key:ssh/ann/key-1"
        other = await store.ssh_keys.find(
            print_, "speech"
        )  # the key's own project is the only possible one
        assert other is not None
        assert other.owner.project == "vision"
        assert (await store.ssh_keys.who(print_)) == ("ann", "key-1", ["vision"])
        assert (await api.call("admin", "DELETE", "/v1/keys/ann"))[0] == 200
        assert await store.ssh_keys.find(print_, "vision") is None
        assert await store.ssh_keys.who(print_) is None


async def test_a_key_from_the_console_has_the_projects_of_its_user(store: Store) -> None:
    async with serve(store) as api:
        _, given = await api.call_from_console(ANN, "GET", "/v1/ssh-keys/challenge", by_oidc=False)
        body = key(2, given)
        status, text = await api.call_from_console(ANN, "POST", "/v1/ssh-keys", body, by_oidc=False)
        assert status == 201, text
        await store.projects.set_member(ROOT, "speech", "ann", "viewer")
        print_ = json.loads(text)["fingerprint"]
        assert (await store.ssh_keys.who(print_)) == ("ann", "key-2", ["speech", "vision"])
        roles = {}
        for project in ("vision", "speech", "absent"):
            found = await store.ssh_keys.find(print_, project)
            roles[project] = found and found.role

        assert roles == {"vision": Role.MEMBER, "speech": Role.VIEWER, "absent": None}
        await store.projects.remove_member(ROOT, "vision", "ann")
        assert await store.ssh_keys.find(print_, "vision") is None
        status, _ = await api.call("admin", "PATCH", "/v1/users/ann", {"status": "disabled"})
        assert status == 200
        assert await store.ssh_keys.who(print_) is None


async def test_keys_are_unique_removed_by_their_user_and_audited(store: Store) -> None:
    async with serve(store) as api:
        made = await add(api, "ann", 1)
        for caller in ("ann", "mate"):
            status, text = await api.call(
                caller, "POST", "/v1/ssh-keys", await proved(api, caller, 1)
            )
            assert (status, "already registered" in text) == (409, True)

        status, text = await api.call("ann", "POST", "/v1/ssh-keys", {"public_key": "ssh-dss AAAA"})
        assert (status, "key type 'ssh-dss' is not one of ssh-ed25519" in text) == (422, True)
        assert (await api.call("mate", "DELETE", "/v1/ssh-keys/key-1"))[0] == 404
        assert (await api.call("mate", "DELETE", f"/v1/ssh-keys/{made['fingerprint']}"))[0] == 404
        removed, text = await api.call("ann", "DELETE", "/v1/ssh-keys/key-1")
        assert (removed, json.loads(text)["fingerprint"]) == (200, made["fingerprint"])
        assert await store.ssh_keys.find(made["fingerprint"], "vision") is None
        await add(api, "mate", 1)
        rows = await store.database.fetch(
            "SELECT action, status FROM audit_log WHERE resource = 'ssh-keys'"
        )
        actions = [(row["action"], row["status"]) for row in rows]
        assert actions.count(("create_ssh_key", 201)) == 2
        assert ("delete_ssh_key", 200) in actions


async def test_a_key_is_registered_by_whoever_holds_it_only(store: Store) -> None:
    """Another user's public key, and a proof made for another user, are refused."""
    async with serve(store) as api:
        good = await proved(api, "ann", 1)
        nothing = {"public_key": good["public_key"]}
        for body, message in (
            (nothing, "`challenge` and `signature`"),
            (good | {"public_key": SshSigner(2).public_key}, "with a key other than public_key"),
            (
                good | {"signature": (await proved(api, "ann", 2))["signature"]},
                "with a key other than",
            ),
            (
                good | {"challenge": good["challenge"].replace("ann", "mate")},
                "not issued by this installation",
            ),
        ):
            status, text = await api.call("ann", "POST", "/v1/ssh-keys", body)
            assert (status, message in text) == (422, True), text

        status, text = await api.call("mate", "POST", "/v1/ssh-keys", good)
        assert (status, "not issued by this installation to user 'mate'" in text) == (
            422,
            True,
        ), text
        assert (await api.call("ann", "POST", "/v1/ssh-keys", good))[0] == 201


async def test_a_key_of_before_stays_valid_until_somebody_proves_it(store: Store) -> None:
    async with serve(store) as api:
        made = await add(api, "mate", 1)
        other = await add(api, "mate", 2)
        await store.database.fetch(
            "UPDATE user_ssh_keys SET proved = false WHERE fingerprint = $1 RETURNING id",
            made["fingerprint"],
        )
        assert (await store.ssh_keys.who(made["fingerprint"])) == ("mate", "key-1", ["vision"])
        changes: list[None] = []
        store.ssh_keys.on_change(lambda: changes.append(None))
        taken = await add(api, "ann", 1)
        assert (taken["user"], taken["proved"], taken["last_used_at"]) == ("ann", True, None)
        assert changes, "open connections of whoever had registered it are looked at again"
        assert (await store.ssh_keys.who(made["fingerprint"])) == ("ann", "key-1", ["vision"])
        status, _ = await api.call("ann", "POST", "/v1/ssh-keys", await proved(api, "ann", 2))
        assert status == 409, "that one is proved"
        body = await proved(api, "ann", 3) | {"name": "key-1"}
        assert (await api.call("ann", "POST", "/v1/ssh-keys", body))[0] == 409, "the name is taken"
        assert (await store.ssh_keys.who(other["fingerprint"])) == ("mate", "key-2", ["vision"])


@pytest.mark.parametrize(
    "column", ["fingerprint = 'SHA256:short'", "public_key = 'ssh-ed25519 AAAA'", "name = ''"]
)
async def test_postgres_refuses_what_is_no_key(store: Store, column: str) -> None:
    async with serve(store) as api:
        await add(api, "ann", 1)
    with pytest.raises(asyncpg.CheckViolationError):
        await store.database.fetch(f"UPDATE user_ssh_keys SET {column} RETURNING id")
