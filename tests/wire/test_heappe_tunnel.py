"""The tunnel keeper against deceptive tunnels: dead tunnels that are still listed, foreign ports,
no tunnels left, and silence."""

from __future__ import annotations

import asyncio

import pytest
from tests.wire.heappe_harness import plain

from moorage.agent.runtimes.heappe.errors import HeappeFailed, SiteFault
from moorage.agent.runtimes.heappe.reach import LONGEST_PAUSE_S
from moorage.agent.runtimes.heappe.tunnel import UNREACHABLE_TIMEOUT_S, TunnelKeeper, TunnelTarget

PROFILES = pytest.mark.parametrize("profile", ["6.3.2", "6.5"])
_REQUEST = "DataTransfer/RequestDataTransfer"
_IPS = "JobManagement/AllocatedNodesIPs"


@PROFILES
async def test_a_tunnel_is_opened_once_and_probed(profile: str) -> None:
    async with plain(profile) as at:
        for _ in range(3):
            await at.keeper.check(30)
            await at.advance(31)
        assert at.server.calls[_REQUEST] == 1
        assert at.keeper.reach.answered_at is not None
        assert at.keeper.problem == ""
        assert at.engine.seen.count("/health") == 3


@PROFILES
@pytest.mark.parametrize("loss", ["ssh", "restart"])
async def test_a_dead_tunnel_heals(profile: str, loss: str) -> None:
    async with plain(profile) as at:
        await at.keeper.check(30)
        await (at.server.tunnels.kill() if loss == "ssh" else at.server.restart())
        for _ in range(4):
            await at.advance(31)
            await at.keeper.check(30)
        assert at.keeper.problem == ""
        assert not at.keeper.broken


async def test_traffic_saves_the_probe_and_the_connection_is_kept_alive() -> None:
    async with plain() as at:
        before = at.server.calls[_IPS]
        for _ in range(60):
            await at.advance(20)
            at.keeper.answered()
            await at.keeper.check(30)
        assert at.server.calls["DataTransfer/HttpGetToJobNode"] == 0
        assert at.server.calls[_IPS] - before == 3  # in 20 minutes


async def test_a_tunnel_to_another_port_is_replaced() -> None:
    async with plain() as at:
        (node,) = await at.client.node_ips(at.job.task.id)
        await at.client.request_tunnel(at.job.task.id, node, 9)
        await at.keeper.check(30)
        assert at.keeper.reach.answered_at is not None


@PROFILES
async def test_an_engine_that_loads_is_no_dead_tunnel(profile: str) -> None:
    async with plain(profile) as at:
        (node,) = await at.client.node_ips(at.job.task.id)
        keeper = TunnelKeeper(at.client, at.job.task.id, TunnelTarget(node, 9), at.clock)
        for _ in range(10):
            await keeper.check(30)
            await at.advance(31)
        assert at.server.calls[_REQUEST] == 1
        assert not keeper.broken
        assert "does not answer" in keeper.problem


async def test_renewals_are_one_at_a_time_and_paced_for_all_who_ask() -> None:
    async with plain() as at:
        await at.keeper.check(30)
        way = await at.keeper.way()
        asked = at.server.calls[_REQUEST]
        refused = []
        for _ in range(3):  # each time a new one, which is dead again
            found = await asyncio.gather(
                *(at.keeper.renew(way, "dead") for _ in range(20)), return_exceptions=True
            )
            refused += [one for one in found if one is not None]
            way = await at.keeper.way()

        assert at.server.calls[_REQUEST] == asked + 1
        assert len(refused) == 40
        assert {one.problem for one in refused if isinstance(one, HeappeFailed)} == {
            SiteFault.TUNNEL
        }
        assert "(tunnel): it is being reopened" in str(refused[0])
        await at.advance(LONGEST_PAUSE_S)
        await at.keeper.renew(way, "dead")
        assert at.server.calls[_REQUEST] == asked + 2


@PROFILES
async def test_what_does_not_heal_is_broken(profile: str) -> None:
    """Another user has closed the task's tunnels: ours stays listed although it is dead, and cannot
    be closed."""
    async with plain(profile) as at:
        await at.keeper.check(30)
        await at.server.tunnels.kill()
        at.server.tunnels.forwards.clear()
        gone_s = 0.0
        while not at.keeper.broken:
            await at.advance(LONGEST_PAUSE_S)
            await at.keeper.check(30)
            gone_s += LONGEST_PAUSE_S

        assert UNREACHABLE_TIMEOUT_S <= gone_s <= UNREACHABLE_TIMEOUT_S + 2 * LONGEST_PAUSE_S


async def test_no_tunnels_left_is_tried_again_and_heals() -> None:
    async with plain() as at:
        at.server.switches.ports_taken = 1000
        with pytest.raises(HeappeFailed) as refused:
            await at.keeper.way()

        assert refused.value.problem is SiteFault.NO_TUNNELS_LEFT
        asked = at.server.calls[_REQUEST]
        for _ in range(5):
            await at.keeper.check(30)

        assert at.server.calls[_REQUEST] == asked  # no storm
        at.server.switches.ports_taken = 0
        await at.advance(60)
        await at.keeper.check(30)
        assert at.keeper.problem == ""


@pytest.mark.parametrize("trap", ["gateway_html", "rate_limited", "resets", "empty_500"])
async def test_silence_of_the_server_is_not_the_tunnels(trap: str) -> None:
    async with plain() as at:
        await at.keeper.check(30)
        for _ in range(6):
            setattr(at.server.switches, trap, 1)
            await at.advance(61)
            await at.keeper.check(30)
        assert at.keeper.reach.silent_at is None
        assert at.server.calls[_REQUEST] == 1
