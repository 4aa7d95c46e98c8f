"""Injects faults into hosts and everything that runs on them, on a whole installation in network
namespaces: ``python -m tests.cluster.run --seconds 300``. Prints the faults and a table of
invariants."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from moorage.common.model.errors import MoorageError
from tests.e2e.harness import until
from tests.faults import account
from tests.faults.excuses import InjectedFault
from tests.faults.findings import Invariant
from tests.faults.invariants import check_invariants
from tests.faults.run import converge, print_report
from tests.faults.schedule import Fault
from tests.previous_release import unpack_previous_release

from .installation import AGENTS, COMPONENTS, ETCD, MANAGERS, PROXIES, Installation
from .traffic import Traffic, had_living_way

UPGRADED = ("agent-2", "proxy-2")
"""The components that start on the previous release. Managers are left out:
``tests/e2e/test_previous_release`` runs one of that release beside this one, which migrates the
database at the same time."""
PROMOTION_S = 5.0
"""From the first write that a promoted standby accepts until a program starts."""
DELAY_S = 0.04
PAUSE_S = 0.8


class Faults:
    """The faults, one at a time, each with the action that undoes it. ``injected`` records them."""

    def __init__(self, installation: Installation, traffic: Traffic, seed: int) -> None:
        self._all = installation
        self._traffic = traffic
        self._rng = random.Random(seed)
        self.injected: list[InjectedFault] = []
        self.promotions_s: list[float] = []
        self._began = time.monotonic()

    async def short(self) -> None:
        """One of each."""
        await self.partition(await self._all.leader(), 7)
        await self.kill("proxy-1")
        await self.partition("agent-2", 6)
        await self.kill("etcd-2")
        await self.delay_standby(self.kill("agent-1"))
        for component in UPGRADED:
            await self.upgrade(component)

        await self.lose_primary()
        await self.kill(await self._all.leader())
        await self.upgrade("manager-3")

    async def long(self, seconds: float) -> None:
        """In an order that the seed determines, repeatedly."""
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            scenes = self._scenes()
            self._rng.shuffle(scenes)
            for scene in scenes:
                if time.monotonic() > ends_at:
                    break
                await scene()

    def _scenes(self) -> list[Callable[[], Awaitable[None]]]:
        rng = self._rng

        async def partition_leader() -> None:
            await self.partition(await self._all.leader(), rng.uniform(3, 15))

        async def kill_leader() -> None:
            await self.kill(await self._all.leader())

        return [
            partition_leader,
            kill_leader,
            lambda: self.partition(rng.choice(AGENTS), rng.uniform(3, 15)),
            lambda: self.partition(rng.choice(PROXIES), rng.uniform(3, 10)),
            lambda: self.kill(rng.choice(MANAGERS)),
            lambda: self.kill(rng.choice(AGENTS)),
            lambda: self.kill(rng.choice(PROXIES)),
            lambda: self.kill(rng.choice(ETCD)),
            lambda: self.delay_standby(self.kill(rng.choice(MANAGERS))),
            lambda: self.upgrade(rng.choice(COMPONENTS)),
            lambda: self.downgrade(rng.choice(UPGRADED)),
            self.lose_primary,
        ]

    async def partition(self, host: str, seconds: float) -> None:
        async with self._injected(Fault("partition", host, 0, seconds)):
            await asyncio.to_thread(self._all.hosts.cut, host)
            try:
                await asyncio.sleep(seconds)
            finally:
                await asyncio.to_thread(self._all.hosts.heal, host)
        await self._alive(host)

    async def kill(self, component: str) -> None:
        async with self._injected(Fault("kill", component, 0, 1)):
            self._all.kill(component)
            await asyncio.sleep(1)
            self._all.start(component)
            await self._alive(component)

    async def upgrade(self, component: str) -> None:
        async with self._injected(Fault("upgrade", component, 0, 0)):
            await asyncio.to_thread(self._all.upgrade, component)
            await self._alive(component)

    async def downgrade(self, component: str) -> None:
        """Downgrade to the previous release, and upgrade again."""
        if self._all.previous is not None:
            await self.restart_as_previous(component)
            await self.upgrade(component)

    async def restart_as_previous(self, component: str) -> None:
        async with self._injected(Fault("upgrade", component, 0, 0)):
            await asyncio.to_thread(self._all.upgrade, component, previous=True)
            await self._alive(component)

    async def delay_standby(self, meanwhile: Awaitable[None]) -> None:
        """Every commit waits for the standby, and the traffic between the two is delayed."""
        relay = self._all.postgres.relay
        assert relay is not None
        relay.delay_s = DELAY_S
        self._print(f"delay of {2 * DELAY_S * 1000:g} ms to the standby and back")
        try:
            await meanwhile
        finally:
            relay.delay_s = 0.0

    async def lose_primary(self) -> None:
        """SIGKILL, promotion of the standby, and a new standby on the other host."""
        async with self._injected(Fault("kill", "postgres", 0, 1)):
            self._all.postgres.kill_primary()
            await asyncio.sleep(0.5)
            await self._all.postgres.promote()

        writable = time.monotonic()
        before = self._traffic.started_kernels.stat().st_size

        async def starts() -> bool:
            return self._traffic.started_kernels.stat().st_size > before

        await until("a program starts after a promotion", starts, 60)
        self.promotions_s.append(time.monotonic() - writable)
        self._print(f"a program starts {self.promotions_s[-1]:.1f} s after the promotion")
        await self._all.postgres.make_standby()

    async def _alive(self, component: str) -> None:
        """The components that were hit work again."""
        if component in AGENTS:
            poll = self._agent_alive(component)
        elif component in PROXIES:
            poll = self._answers(f"{self._all.openai_urls[PROXIES.index(component)]}/models")
        elif component in MANAGERS:
            poll = self._answers(f"{self._all.urls[MANAGERS.index(component)]}/readyz")
        else:
            return

        await until(f"{component} is there again", poll, 90)
        await asyncio.sleep(PAUSE_S)

    def _agent_alive(self, agent: str) -> Callable[[], Awaitable[bool]]:
        async def poll() -> bool:
            async with self._all.client() as client:
                return (await client.agents.get(agent)).status == "ALIVE"

        return poll

    def _answers(self, url: str) -> Callable[[], Awaitable[bool]]:
        import aiohttp

        async def poll() -> bool:
            headers = {"Authorization": f"Bearer {self._all.key}"}
            async with aiohttp.ClientSession(headers=headers) as http, http.get(url) as answer:
                return answer.status == 200

        return poll

    @asynccontextmanager
    async def _injected(self, fault: Fault) -> AsyncIterator[None]:
        self._print(str(fault))
        began = datetime.now(UTC)
        position = len(self.injected)
        self.injected.append(InjectedFault(fault, began))
        try:
            yield
        finally:
            self.injected[position] = InjectedFault(fault, began, datetime.now(UTC))

    def _print(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", flush=True)


async def run(home: Path, seed: int, seconds: float, previous: Path | None) -> list[Invariant]:
    """``seconds``: how long to inject faults; 0 means one of each. Raises ``OSError`` if namespaces
    cannot be made."""
    installation = Installation(home, previous)
    try:
        return await _run(
            installation, Traffic(installation, seed, per_s=1.5, engine_gpus=5), seconds
        )
    finally:
        await installation.finish()


async def _run(installation: Installation, traffic: Traffic, seconds: float) -> list[Invariant]:
    began = time.monotonic()
    await installation.start_everything(UPGRADED if installation.previous else ())
    await account.begin(installation.postgres.dsn_of(installation.postgres.primary))
    await traffic.create_endpoints()
    await installation.replicas_serve()
    print(f"everything runs after {time.monotonic() - began:.1f} s", flush=True)
    faults = Faults(installation, traffic, traffic.seed)
    began = time.monotonic()
    load = asyncio.create_task(traffic.run(seconds + 3600))
    try:
        await (faults.long(seconds) if seconds else faults.short())
    finally:
        traffic.stop()
        await load

    lasted = time.monotonic() - began
    began = time.monotonic()
    not_converged = list[str]()
    try:
        await converge(installation, traffic)
    except AssertionError as error:
        not_converged.append(str(error))

    converged_s = time.monotonic() - began
    invariants, ends = await check_invariants(installation, traffic, faults.injected)
    living = [f"{each}" for each in traffic.failed if had_living_way(each, faults.injected)]
    late = [f"{each:.1f} s" for each in faults.promotions_s if each > PROMOTION_S]
    for each in traffic.failed:
        print(f"failed from {each.began:%H:%M:%S} to {each.ended:%H:%M:%S}: {each.errors}")

    invariants += [
        Invariant("a request that has a living way is answered", traffic.chats.total(), living),
        Invariant("work goes on soon after a promotion", len(faults.promotions_s), late),
        Invariant("the platform converges after the faults", 1, not_converged),
        Invariant("no component exits on its own", len(COMPONENTS), installation.exited()),
    ]
    print_report(traffic, lasted, converged_s, faults.injected, ends=ends, invariants=invariants)
    return invariants


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--keep", action="store_true", help="keep the state directory with all logs"
    )
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="moorage-cluster-"))
    home.chmod(0o711)

    try:
        try:
            previous = unpack_previous_release(home / "previous-release")
        except pytest.skip.Exception as skipped:
            print(skipped)
            previous = None

        invariants = asyncio.run(run(home, options.seed, options.seconds, previous))
    finally:
        if options.keep:
            print(f"state and logs: {home}")
        else:
            shutil.rmtree(home, ignore_errors=True)

    return 1 if any(invariant.violations for invariant in invariants) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MoorageError as error:
        sys.exit(str(error))
