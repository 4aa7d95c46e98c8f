"""API keys on a real manager: what is made with one is its owner's, and a revoked one is out at once."""

from __future__ import annotations

import aiohttp
import pytest
from manager_harness import client, manager

from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.views.keys import KeySpec
from moorage.manager import Manager
from moorage.sdk import ApiError, Client

__all__ = ["client", "manager"]  # fixtures


async def test_a_key_from_its_making_to_its_end(manager: Manager, client: Client) -> None:
    made = await client.create_key(KeySpec(name="ci", user="ann", project="vision"))
    async with Client(f"http://{manager.api_address}", made.secret) as ann:
        job = await ann.create_session(SessionSpec(name="job", command=["x"]))
        assert (job.user, job.project) == ("ann", "vision")
        with pytest.raises(ApiError) as refused:
            await ann.list_keys()
        assert refused.value.status == 403
        key = await client.get_key("ci")
        assert key.last_used_at is not None
        assert (await client.revoke_key("ci")).last_used_at == key.last_used_at
        with pytest.raises(ApiError) as refused:
            await ann.get_session("job")
        assert refused.value.status == 401
    assert (await client.get_session("job")).user == "ann", "what was made with it goes on"
    with pytest.raises(ApiError) as refused:
        await client.revoke_key("admin")
    assert (refused.value.status, "last administrator" in str(refused.value)) == (409, True)


async def test_a_member_sees_its_project_and_changes_its_own(manager: Manager, client: Client) -> None:
    """Another's session of the same project is shown and left alone; one of another project is not there."""

    def asked_by(user: str, project: str) -> Client:
        return Client(f"http://{manager.api_address}", secrets[user, project])

    owners = [("ann", "vision"), ("bob", "vision"), ("cy", "speech")]
    made = [await client.create_key(KeySpec(name=u, user=u, project=p)) for u, p in owners]
    secrets = {owner: key.secret for owner, key in zip(owners, made, strict=True)}
    async with asked_by(*owners[0]) as ann, asked_by(*owners[1]) as bob, asked_by(*owners[2]) as cy:
        for who, name in ((ann, "hers"), (bob, "his"), (cy, "far")):
            await who.create_session(SessionSpec(name=name, command=["x"]))
        model = EndpointSpec(name="m", engine="custom", command=["x"], probe={"path": "/"}, replicas=0)
        assert (await bob.create_endpoint(model)).user == "bob"

        assert {s.name for s in (await ann.list_sessions()).items} == {"hers", "his"}
        assert {s.name for s in (await client.list_sessions()).items} == {"hers", "his", "far"}
        assert (await ann.get_session("his")).user == "bob"
        assert len(await ann.history("his")) == 1
        for act in (ann.stop_session("his"), ann.delete_endpoint("m"), ann.scale_endpoint("m", 2)):
            with pytest.raises(ApiError) as refused:
                await act
            assert (refused.value.status, "'bob'" in str(refused.value)) == (403, True)
        headers = {"Authorization": f"Bearer {secrets[owners[0]]}"}
        async with aiohttp.ClientSession(f"http://{manager.api_address}", headers=headers) as web:
            for name, status in (("his", 403), ("far", 404)):
                async with web.get(f"/v1/sessions/{name}/exec") as answer:
                    assert answer.status == status
        far = (await cy.get_session("far")).id
        for look in (
            ann.get_session("far"),
            ann.stop_session(far),
            ann.history(far),
            ann.why("far"),
            ann.session_stats(far),
        ):
            with pytest.raises(ApiError) as refused:
                await look
            assert refused.value.status == 404
        # A name is looked for among what may be seen: an ended one of its own, not a live one of others.
        await ann.stop_session("hers")
        await cy.create_session(SessionSpec(name="hers", command=["x"]))
        assert (await ann.get_session("hers")).user == "ann"
        assert (await client.get_session("hers")).user == "cy"
        assert (await client.stop_session("his")).user == "bob"
