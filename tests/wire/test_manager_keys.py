"""API keys on a real manager: what is made with one is its owner's, and a revoked one is out at once."""

from __future__ import annotations

import pytest
from manager_harness import client, manager

from fairlead.common.keys import KeySpec
from fairlead.common.spec import SessionSpec
from fairlead.manager import Manager
from fairlead.sdk import ApiError, Client

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
