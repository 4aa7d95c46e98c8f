"""Tasks that keep a daemon registered in etcd and watch its settings survive a failure in any
await."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.common.aio import supervisor
from moorage.common.aio.clock import SystemClock
from moorage.common.etcd import registration
from moorage.common.etcd.client import EtcdClient
from moorage.common.etcd.registration import registered
from moorage.server import etcd as server_etcd
from moorage.server.etcd import EtcdUse, with_etcd
from moorage.server.shared_settings import copy_of
from tests.etcd.servers import PREFIX, EtcdServers
from tests.interruption import TaskFaults

pytestmark = [pytest.mark.etcd, pytest.mark.timeout(300)]
FAULTS = (0, 1, 2, 3, 5, 8, 13, 21)


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> TaskFaults:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(registration, "LEASE_S", 3)
    installed = TaskFaults()
    installed.install(monkeypatch, registration)
    installed.install(monkeypatch, server_etcd)
    return installed


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.05)


async def test_registration_goes_on(one: EtcdServers, faults: TaskFaults) -> None:
    for number, error in zip(FAULTS, (OSError, ValueError) * 4, strict=True):
        faults.disarm()
        faults.arm("etcd.registration", number, error("injected"))
        before = faults.thrown
        name = f"node-{number}"
        async with registered(one.access, "agents", name, lambda: {}, clock=SystemClock()):
            await until(lambda: faults.thrown > before)  # noqa: B023
            await until(lambda: name in one.etcdctl("get", "--prefix", "--keys-only", PREFIX))  # noqa: B023
        assert name not in one.etcdctl("get", "--prefix", "--keys-only", PREFIX)


async def test_settings_watch_goes_on(one: EtcdServers, faults: TaskFaults, tmp_path: Path) -> None:
    class Component:
        async def __aenter__(self) -> Component:
            return self

        async def __aexit__(self, *_: object) -> None: ...

    copy = copy_of(tmp_path)
    async with (
        EtcdClient(one.access) as client,
        with_etcd(Component(), EtcdUse(tmp_path, one.access), SystemClock(), lambda _: []),
    ):
        for number, error in zip(
            FAULTS[:5], (OSError, ValueError, OSError, ValueError, OSError), strict=True
        ):
            faults.disarm()
            faults.arm("etcd.settings", number, error("injected"))
            before = faults.thrown
            for value in range(2):  # a change makes it run through its awaits
                await client.put(f"{PREFIX}settings/proxy.workers", str(10 * number + value))
                await asyncio.sleep(0.2)

            await until(lambda: faults.thrown > before)  # noqa: B023
            await client.put(f"{PREFIX}settings/proxy.workers", str(number))
            wanted = {"proxy.workers": str(number)}
            await until(lambda: copy.exists() and json.loads(copy.read_text()) == wanted)  # noqa: B023
