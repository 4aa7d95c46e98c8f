"""API keys on a real manager: ownership, visibility within projects and revocation."""

from __future__ import annotations

import aiohttp
import pytest
from manager_harness import client, manager

from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.views.keys import KeySpec
from moorage.manager import Manager
from moorage.sdk import ApiError, Client

__all__ = ["client", "manager"]  # fixtures


async def test_key_from_creation_to_revocation(manager: Manager, client: Client) -> None:
    created = await client.keys.create(
        KeySpec(name="ci", user="ann", project="vision", create_missing=True)
    )
    async with Client(f"http://{manager.api_address}", created.secret) as ann:
        job = await ann.sessions.create(SessionSpec(name="job", command=["x"]))
        assert (job.user, job.project) == ("ann", "vision")
        assert [key.name for key in await ann.keys.list()] == ["ci"], "a member sees its own keys"
        with pytest.raises(ApiError) as refused:
            await ann.peers.list()

        assert refused.value.status == 403
        key = await client.keys.get("ci")
        assert key.last_used_at is not None
        assert (await client.keys.revoke("ci")).last_used_at == key.last_used_at
        with pytest.raises(ApiError) as refused:
            await ann.sessions.get("job")

        assert refused.value.status == 401

    assert (await client.sessions.get("job")).user == "ann", (
        "sessions outlive the key that created them"
    )
    with pytest.raises(ApiError) as refused:
        await client.keys.revoke("admin")

    assert (refused.value.status, "last administrator" in str(refused.value)) == (409, True)


async def test_member_reads_its_project_and_changes_only_its_own(
    manager: Manager, client: Client
) -> None:
    """Sessions of other project members are read-only; those in other projects are not found."""

    def client_of(user: str, project: str) -> Client:
        return Client(f"http://{manager.api_address}", secrets[user, project])

    owners = [("ann", "vision"), ("bob", "vision"), ("cy", "speech")]
    created = [
        await client.keys.create(KeySpec(name=u, user=u, project=p, create_missing=True))
        for u, p in owners
    ]
    secrets = {owner: key.secret for owner, key in zip(owners, created, strict=True)}
    async with (
        client_of(*owners[0]) as ann,
        client_of(*owners[1]) as bob,
        client_of(*owners[2]) as cy,
    ):
        for user, name in ((ann, "hers"), (bob, "his"), (cy, "far")):
            await user.sessions.create(SessionSpec(name=name, command=["x"]))

        model = EndpointSpec(
            name="m", engine="custom", command=["x"], probe={"path": "/"}, replicas=0
        )
        assert (await bob.endpoints.create(model)).user == "bob"

        assert {s.name for s in await ann.sessions.list()} == {"hers", "his"}
        assert {s.name for s in await client.sessions.list()} == {"hers", "his", "far"}
        assert (await ann.sessions.get("his")).user == "bob"
        assert len(await ann.sessions.history("his")) == 1

        for act in (
            ann.sessions.stop("his"),
            ann.endpoints.delete("m"),
            ann.endpoints.scale("m", 2),
        ):
            with pytest.raises(ApiError) as refused:
                await act
            assert (refused.value.status, "'bob'" in str(refused.value)) == (403, True)

        headers = {"Authorization": f"Bearer {secrets[owners[0]]}"}
        async with aiohttp.ClientSession(f"http://{manager.api_address}", headers=headers) as web:
            for name, status in (("his", 403), ("far", 404)):
                async with web.get(f"/v1/sessions/{name}/exec") as response:
                    assert response.status == status

        far = (await cy.sessions.get("far")).id
        for call in (
            ann.sessions.get("far"),
            ann.sessions.stop(far),
            ann.sessions.history(far),
            ann.sessions.why("far"),
            ann.sessions.stats(far),
        ):
            with pytest.raises(ApiError) as refused:
                await call
            assert refused.value.status == 404

        # A name is resolved among visible sessions: to an ended session in the project, not to a
        # live session in another project.
        await ann.sessions.stop("hers")
        await cy.sessions.create(SessionSpec(name="hers", command=["x"]))
        assert (await ann.sessions.get("hers")).user == "ann"
        assert (await client.sessions.get("hers")).user == "cy"
        assert (await client.sessions.stop("his")).user == "bob"
