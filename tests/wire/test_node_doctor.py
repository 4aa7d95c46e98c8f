"""``moorage agent doctor`` on this machine, with a real manager at the other end of the link."""

from __future__ import annotations

import socket
from datetime import timedelta

from peer_harness import Off, Site, site

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings, Settings
from moorage.server.doctor import node as node_doctor
from moorage.server.doctor.checks import Line

__all__ = ["site"]  # fixture


async def look(site: Site, clock: SystemClock | None = None, **agent: object) -> dict[str, Line]:
    said = {"id": "node-1", "manager": site.manager.link_address, "docker": "off"} | agent
    settings = Settings(agent=AgentSettings.model_validate(said))
    home = site.home / "node-1"
    home.mkdir(exist_ok=True)
    found = await node_doctor.examine_node(settings, home, "token", clock or SystemClock())
    return {line.name: line for line in found}


async def test_a_node_that_joined(site: Site) -> None:
    await site.join()
    lines = await look(site)
    for name in ("certificate", "manager", "clock", "versions", "Docker"):
        assert lines[name].mark == "ok", lines[name]
    assert "by mTLS" in lines["manager"].found
    assert set(lines) >= {"state directory", "ports", "cgroups", "NVIDIA driver"}


async def test_what_is_wrong_is_named(site: Site) -> None:
    await site.join()
    assert (await look(site, Off(-timedelta(minutes=30))))["clock"].mark == "fail"
    await site.client.revoke_peer("agent", "node-1")
    refused = (await look(site))["manager"]
    assert (refused.mark, "was revoked" in refused.found) == ("fail", True), refused
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        lines = await look(site, port_range=f"{port}-{port}", manager="127.0.0.1:1")
    assert (lines["ports"].mark, lines["manager"].mark) == ("fail", "fail")
    assert "nothing answers at 127.0.0.1:1" in lines["manager"].found
    assert (await look(site, address="198.51.100.9"))["kernels' address"].mark == "fail"
    docker = (await look(site, docker=f"unix://{site.home}/none.sock"))["Docker"]
    assert (docker.mark, docker.advice != "") == ("warn", True)


async def test_a_node_that_has_not_joined(site: Site) -> None:
    lines = await look(site, manager="192.0.2.7:8701")
    assert "certificate" not in lines
    assert (lines["manager"].mark, "agent join URL TOKEN" in lines["manager"].advice) == ("fail", True)
