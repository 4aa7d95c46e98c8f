"""The etcd client against real servers, which die, lose their quorum, and compact."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from moorage.common.etcd import client as client_module
from moorage.common.etcd import wire
from moorage.common.etcd.access import EtcdError, EtcdUnavailable
from moorage.common.etcd.client import CALL_S, EtcdClient
from tests.etcd.servers import PREFIX, EtcdServers

pytestmark = pytest.mark.etcd


async def values(client: EtcdClient, prefix: str = PREFIX) -> dict[str, str]:
    snapshot = await client.read(prefix)
    return {key: entry.value for key, entry in snapshot.entries.items()}


async def test_keys_transactions_and_leases(three: EtcdServers) -> None:
    async with EtcdClient(three.access) as client:
        await client.put(f"{PREFIX}a", "größer")
        await client.put(f"{PREFIX}b", "")
        assert await values(client) == {f"{PREFIX}a": "größer", f"{PREFIX}b": ""}
        modified = (await client.read(PREFIX)).entries[f"{PREFIX}a"].modified
        for expected in (True, False):  # it changes the second time
            written = [wire.put_operation(f"{PREFIX}a", "2"), wire.delete_operation(f"{PREFIX}b")]
            assert (
                await client.commit([wire.unchanged(f"{PREFIX}a", modified)], written) is expected
            )

        assert await values(client) == {f"{PREFIX}a": "2"}
        assert await client.commit(
            [wire.unchanged(f"{PREFIX}new", 0)], [wire.put_operation(f"{PREFIX}new", "1")]
        )
        lease = await client.grant(30)
        await client.put(f"{PREFIX}leased", "x", lease)
        assert await client.keep_alive(lease)
        await client.revoke(lease)
        assert not await client.keep_alive(lease)
        assert f"{PREFIX}leased" not in await values(client)


async def test_refusals_name_the_setting(three: EtcdServers) -> None:
    for access, message in (
        (replace(three.access, password="wrong"), "check etcd.user and etcd.password"),
        (replace(three.access, user=""), "set etcd.user and etcd.password"),
    ):
        async with EtcdClient(access) as client:
            with pytest.raises(EtcdError, match=message):
                await client.put(f"{PREFIX}a", "1")

    async with EtcdClient(three.access) as client:
        with pytest.raises(EtcdError, match=r"grant the role of etcd\.user"):
            await client.put("/elsewhere", "1")
    async with EtcdClient(replace(three.access, authority=None)) as client:
        with pytest.raises(EtcdUnavailable, match="certificate verify failed"):
            await client.read(PREFIX)


async def test_calls_go_on_when_the_leader_dies(three: EtcdServers) -> None:
    leader = three.leader()
    first = f"{three.scheme}://127.0.0.1:{leader.client}"
    others = tuple(endpoint for endpoint in three.endpoints if endpoint != first)
    async with EtcdClient(replace(three.access, endpoints=(first, *others))) as client:
        await client.put(f"{PREFIX}a", "1")
        three.kill(leader)
        await client.put(f"{PREFIX}a", "2")  # within the limit of a call, or this raises
        assert await values(client) == {f"{PREFIX}a": "2"}
        three.start_member(leader)
        three.wait_until_healthy()

        for other in three.members:
            if other is not leader:
                three.kill(other)
                three.start_member(other)
                three.wait_until_healthy()  # its tokens are gone

        assert await values(client) == {f"{PREFIX}a": "2"}


async def test_without_a_quorum_calls_end_and_stale_reads_work(three: EtcdServers) -> None:
    async with EtcdClient(three.access) as client:
        await client.put(f"{PREFIX}a", "1")
        await client.authenticate()  # without a quorum no token is issued
        for member in three.members[1:]:
            three.kill(member)

        with pytest.raises(EtcdUnavailable, match=r"check etcd\.address"):
            async with asyncio.timeout(CALL_S + 30):
                await client.put(f"{PREFIX}a", "2")

        stale = await client.read(PREFIX, stale=True)
        assert stale.entries[f"{PREFIX}a"].value == "1"
        assert all((await client.health()).values()), (
            "each says that it has no leader, or does not answer"
        )
        for member in three.members[1:]:
            three.start_member(member)

        three.wait_until_healthy()
        await client.put(f"{PREFIX}a", "3")

        # the abandoned write may be applied, but not after a later one
        await asyncio.sleep(1)
        assert await values(client) == {f"{PREFIX}a": "3"}


async def test_nothing_listens(one: EtcdServers) -> None:
    one.stop()
    async with EtcdClient(one.access) as client:
        began = time.monotonic()
        with pytest.raises(EtcdUnavailable, match="Connect call failed"):
            await client.read(PREFIX)
        assert time.monotonic() - began < CALL_S, "it is not tried until the time of a call is over"


async def test_follow_survives_compaction_and_silence(
    one: EtcdServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EtcdClient(one.access) as client:
        following = client.follow(PREFIX)

        async def following_values() -> dict[str, str]:
            async with asyncio.timeout(10):
                snapshot = await anext(following)
            return {key: entry.value for key, entry in snapshot.entries.items()}

        assert await following_values() == {}
        change = asyncio.create_task(following_values())
        await asyncio.sleep(0.2)
        await client.put(f"{PREFIX}a", "1")
        assert await change == {f"{PREFIX}a": "1"}
        for number in range(10):  # while nobody watches
            await client.put(f"{PREFIX}a", str(number))

        one.etcdctl("compaction", str((await client.read(PREFIX)).revision))
        assert await following_values() == {f"{PREFIX}a": "9"}
        monkeypatch.setattr(client_module, "WATCH_S", 0.2)
        assert await following_values() == {f"{PREFIX}a": "9"}  # read again after a silence
        await following.aclose()


async def test_follow_ends_with_its_server(one: EtcdServers) -> None:
    async with EtcdClient(one.access) as client:
        following = client.follow(PREFIX)
        await anext(following)
        change = asyncio.ensure_future(anext(following))
        await asyncio.sleep(0.2)
        one.stop()
        with pytest.raises(EtcdUnavailable):
            async with asyncio.timeout(10):
                await change
