"""Many played agents in one process, each with a real link of its own to the manager.

Each has its own connection, too, as real agents have: streams that share a few would cost this process 30 KiB
and a fifth of the CPU less for each agent, but the manager would not feel what a thousand agents are.
"""

from __future__ import annotations

import asyncio
import platform
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from moorage import __version__
from moorage.agent.devices.fake_inventory import FakeInventory
from moorage.agent.link.client import Link
from moorage.common.aio.clock import Clock
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.config.settings import AgentSettings
from moorage.common.link.dial import Dialer
from moorage.common.link.messages import AgentInfo
from moorage.common.model.ids import AgentId
from moorage.common.model.kernel import ENGINES, RUNTIMES
from moorage.simulator.fleet.faults import Faults
from moorage.simulator.fleet.listener import Answering, Refusing
from moorage.simulator.fleet.node import Node, Stage
from moorage.simulator.fleet.script import Range, Script
from moorage.simulator.fleet.statistics import Tally

_FAREWELL_S = 5.0


@dataclass(frozen=True, slots=True)
class Cast:
    """Who is played. ``ramp_s``: seconds over which the agents come, evenly. ``serve``: kernels that have a
    port answer there, in OpenAI's words; else the port refuses. ``cpu`` and ``mem`` (thousandths of a CPU,
    bytes) None: as ``fake:`` inventories have."""

    agents: int = 10
    gpus: int = 8
    model: str = "H100"
    cpu: int | None = None
    mem: int | None = None
    prefix: str = "sim-"
    runtimes: tuple[str, ...] = RUNTIMES
    engines: tuple[str, ...] = ENGINES
    seed: int = 0
    ramp_s: float = 0.0
    settle_s: float = 0.01
    serve: bool = False


class Simulation:
    """Use as an async context manager: inside, the agents are there (or about to be: see ``Cast.ramp_s``). At
    its end they end their kernels and say so.

    Of ``settings`` the manager's address, the resource group, the address and the report interval count.
    Raises ``StartupError`` where it cannot listen.
    """

    def __init__(
        self, cast: Cast, script: Script, faults: Faults, settings: AgentSettings, *, clock: Clock, token: str
    ) -> None:
        self.cast, self.faults, self.tally = cast, faults, Tally(agents=cast.agents)
        self._script = replace(
            script, fail_start=faults.fail_start, fail_run=faults.fail_run, hang_stop=faults.hang_stop
        )
        self._settings, self._clock, self._token = settings, clock, token
        self._dice = random.Random(f"{cast.seed}/faults")
        self._seats: list[_Seat] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Simulation:
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def _start(self, stack: AsyncExitStack) -> None:
        place = Answering if self.cast.serve else Refusing
        port = await stack.enter_async_context(place(self._settings.address))
        stage = Stage(
            script=self._script,
            timers=asyncio.get_running_loop(),
            clock=self._clock,
            tally=self.tally,
            port=port,
            settle_s=self.cast.settle_s,
            lose_report=self.faults.lose_report,
        )
        self._seats = [
            _Seat(self._info(number), stage, self._link_to, self.cast.seed)
            for number in range(self.cast.agents)
        ]
        stack.push_async_callback(self._close)
        tasks = [spawn("simulate.ramp", self._ramp())]
        for name, every_s, do in (
            ("disconnect", self.faults.disconnect_every_s, self._disconnect),
            ("death", self.faults.die_every_s, self._die),
        ):
            if every_s:
                tasks.append(spawn(f"simulate.{name}", self._now_and_then(every_s, do)))
        stack.push_async_callback(cancel_and_wait, *tasks)

    async def _close(self) -> None:
        await asyncio.gather(*(seat.close() for seat in self._seats))

    def _info(self, number: int) -> AgentInfo:
        cast, settings = self.cast, self._settings
        agent_id = AgentId(f"{cast.prefix}{number:0{len(str(max(cast.agents - 1, 1)))}}")
        own = {"cpu": cast.cpu, "mem": cast.mem}
        offers = tuple(
            offer if (capacity := own.get(offer.slot)) is None else replace(offer, capacity=capacity)
            for offer in FakeInventory(cast.gpus, cast.model, agent_id).offers()
        )
        return AgentInfo(
            agent_id=agent_id,
            resource_group=settings.resource_group,
            address=settings.address,
            version=__version__,
            arch=platform.machine(),
            runtimes=cast.runtimes,
            engines=cast.engines,
            offers=offers,
            labels=dict(settings.labels),
            # The same again in the next simulation, as if its state directory had been kept.
            identity=f"played-{agent_id}",
        )

    def _link_to(self, node: Node, attached: Callable[[bool], None]) -> Link:
        return Link(
            Dialer(self._settings.manager, token=self._token, clock=self._clock),
            clock=self._clock,
            interval_s=self._settings.report_interval_s,
            streams=node.streams,
            report=node.report,
            take=node.take,
            logs=node.logs,
            connected=lambda: attached(True),
            disconnected=lambda: attached(False),
        )

    async def _ramp(self) -> None:
        begun = self._clock.monotonic()
        for number, seat in enumerate(self._seats):
            ahead_s = begun + self.cast.ramp_s * number / len(self._seats) - self._clock.monotonic()
            if ahead_s > 0.001:
                await asyncio.sleep(ahead_s)
            seat.attach()

    # What goes wrong.

    async def _now_and_then(self, every_s: float, do: Callable[[_Seat], None]) -> None:
        while True:
            await asyncio.sleep(self._dice.expovariate(1 / every_s))
            up = [seat for seat in self._seats if seat.up]
            if up:
                do(self._dice.choice(up))

    def _disconnect(self, seat: _Seat) -> None:
        self.tally.faults["disconnect"] += 1
        seat.leave(Range(0, 1).pick(self._dice))

    def _die(self, seat: _Seat) -> None:
        reboot = self._dice.random() < self.faults.reboot
        lose_ledger = not reboot and self._dice.random() < self.faults.lose_ledger
        self.tally.faults["reboot" if reboot else "lost-ledger" if lose_ledger else "death"] += 1
        seat.leave(
            self.faults.down_s.pick(self._dice), lambda: seat.node.die(reboot=reboot, lose_ledger=lose_ledger)
        )


class _Seat:
    """One played agent with its link, which comes and goes."""

    def __init__(
        self,
        info: AgentInfo,
        stage: Stage,
        link_to: Callable[[Node, Callable[[bool], None]], Link],
        seed: int,
    ) -> None:
        dice = random.Random(f"{seed}/{info.agent_id}")
        self.node = Node(info, stage, dice, changed=self._changed)
        self._tally, self._link_to = stage.tally, link_to
        self._link: Link | None = None
        self._task: asyncio.Task[None] | None = None
        self._away: asyncio.Task[None] | None = None
        self._attached = False

    @property
    def up(self) -> bool:
        """It has a link, and is not about to lose it."""
        return self._link is not None and self._away is None

    def attach(self) -> None:
        self._link = self._link_to(self.node, self._attachment)
        self._task = spawn(f"simulate.{self.node.info.agent_id}", self._link.run())

    def leave(self, away_s: float, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Be cut off at once, and come back after ``away_s`` seconds."""
        self._away = spawn(f"simulate.away.{self.node.info.agent_id}", self._leave(away_s, meanwhile))

    async def close(self) -> None:
        """End its kernels and say so, if it is connected."""
        await cancel_and_wait(self._away)
        self.node.drain()
        if self._link is not None:
            await self._link.farewell(_FAREWELL_S)
        await self._cut()
        self.node.close()

    async def _leave(self, away_s: float, meanwhile: Callable[[], None]) -> None:
        await self._cut()
        meanwhile()
        await asyncio.sleep(away_s)
        self._away = None
        self.attach()

    async def _cut(self) -> None:
        self._link = None
        await cancel_and_wait(self._task)

    def _changed(self, within_s: float) -> None:
        if self._link is not None:
            self._link.changed(within_s)

    def _attachment(self, attached: bool) -> None:
        self._tally.attached += attached - self._attached
        self._attached = attached
