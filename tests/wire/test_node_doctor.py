"""``moorage agent doctor`` on this machine, against a real manager."""

from __future__ import annotations

import socket
from datetime import timedelta

from peer_harness import Site, SkewedClock, site

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings, Settings
from moorage.server.doctor.checks import CheckResult
from moorage.server.doctor.node import check_node

__all__ = ["site"]  # fixture


async def check(
    site: Site, clock: SystemClock | None = None, **agent: object
) -> dict[str, CheckResult]:
    values = {"id": "node-1", "manager": site.manager.link_address, "docker": "off"} | agent
    settings = Settings(agent=AgentSettings.model_validate(values))
    home = site.home / "node-1"
    home.mkdir(exist_ok=True)
    results = await check_node(settings, home, "token", clock or SystemClock())
    return {result.name: result for result in results}


async def test_registered_node_passes(site: Site) -> None:
    await site.join()
    results = await check(site)
    for name in ("certificate", "manager", "clock", "versions", "Docker"):
        assert results[name].status == "ok", results[name]
    assert "by mTLS" in results["manager"].detail
    assert set(results) >= {"state directory", "ports", "cgroups", "NVIDIA driver"}


async def test_problems_are_reported(site: Site) -> None:
    await site.join()
    assert (await check(site, SkewedClock(-timedelta(minutes=30))))["clock"].status == "fail"
    await site.client.peers.revoke("agent", "node-1")
    refused = (await check(site))["manager"]
    assert (refused.status, "was revoked" in refused.detail) == ("fail", True), refused
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        port = occupied.getsockname()[1]
        results = await check(site, port_range=f"{port}-{port}", manager="127.0.0.1:1")

    assert (results["ports"].status, results["manager"].status) == ("fail", "fail")
    assert "no answer from 127.0.0.1:1" in results["manager"].detail
    assert (await check(site, address="198.51.100.9"))["kernels' address"].status == "fail"
    docker = (await check(site, docker=f"unix://{site.home}/none.sock"))["Docker"]
    assert (docker.status, docker.next_step != "") == ("warn", True)


async def test_unregistered_node_fails_with_a_next_step(site: Site) -> None:
    results = await check(site, manager="192.0.2.7:8701")
    assert "certificate" not in results
    assert (results["manager"].status, "agent join URL" in results["manager"].next_step) == (
        "fail",
        True,
    )
