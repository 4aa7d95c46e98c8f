"""Checks of a HEAppE site by `moorage agent doctor`: each names the problem and the next step."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.heappe import HeappeServer

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings
from moorage.server.doctor.heappe import check_heappe

_GIVEN = {"heappe_user": "agent", "heappe_secret": "secret-agent", "heappe_project": "EXA-00-1"}
_CHECKS = ["server", "clock", "credentials", "project", "template", "cluster", "tunnel"]


@pytest.mark.parametrize("profile", ["6.3.2", "6.5"])
async def test_a_site_that_works(tmp_path: Path, profile: str) -> None:
    async with HeappeServer(profile) as server:
        settings = AgentSettings(heappe_url=server.url, heappe_node_type="gpu", **_GIVEN)
        results = await check_heappe(settings, tmp_path, SystemClock())
    assert [result.name.removeprefix("HEAppE ") for result in results] == _CHECKS
    assert {result.status for result in results} == {"ok"}


@pytest.mark.parametrize("profile", ["6.3.2", "6.5"])
@pytest.mark.parametrize(
    ("given", "name", "detail"),
    [
        ({"heappe_secret": "wrong"}, "HEAppE credentials", ""),
        ({"heappe_secret": "wrong", "heappe_auth": "session"}, "HEAppE credentials", "credentials"),
        ({"heappe_project": "NONE"}, "HEAppE project", "it has: EXA-00-1"),
        ({"heappe_project": "OLD-00-1"}, "HEAppE project", ""),
        ({"heappe_template": "none"}, "HEAppE template", "it has: "),
        ({"heappe_secret": None}, "HEAppE settings", "agent.heappe_secret"),
        ({"heappe_url": "http://127.0.0.1:9"}, "HEAppE server", "unreachable"),
    ],
)
async def test_what_is_wrong_is_named(
    tmp_path: Path, profile: str, given: dict[str, str], name: str, detail: str
) -> None:
    async with HeappeServer(profile) as server:
        values = {"heappe_url": server.url, "heappe_node_type": "gpu", **_GIVEN, **given}
        *_, last = await check_heappe(AgentSettings(**values), tmp_path, SystemClock())
    assert (last.status, last.name) == ("fail", name)
    assert detail in last.detail
    assert last.next_step


async def test_maintenance_shows_although_the_health_is_green(tmp_path: Path) -> None:
    async with HeappeServer() as server:
        server.switches.maintenance = True
        settings = AgentSettings(heappe_url=server.url, heappe_node_type="gpu", **_GIVEN)
        results = {
            one.name: one.status for one in await check_heappe(settings, tmp_path, SystemClock())
        }
    assert (results["HEAppE server"], results["HEAppE cluster"]) == ("ok", "fail")
