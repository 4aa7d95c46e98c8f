"""Fleet simulation: many simulated agents in one process, each with its own real link to the
manager.

Every agent also has its own connection, as real agents have. Sharing a few connections would save
this process 30 KiB and a fifth of the CPU time per agent, but the manager would not carry the load
of a thousand agents.
"""

from __future__ import annotations

import asyncio
import platform
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from moorage import __version__
from moorage.agent.devices.fake_inventory import FakeInventory
from moorage.agent.link.client import LinkClient
from moorage.common.aio.clock import Clock
from moorage.common.aio.supervisor import SupervisedTask
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.config.settings import AgentSettings
from moorage.common.link.dial import Dialer
from moorage.common.link.messages import AgentInfo
from moorage.common.model.ids import AgentId
from moorage.common.model.kernel import ENGINES
from moorage.common.model.runtimes import RUNTIMES, isolated_name
from moorage.simulator.fleet.agent import SimulatedAgent, SimulationContext
from moorage.simulator.fleet.faults import Faults
from moorage.simulator.fleet.listeners import RefusingPort, StubModelServer
from moorage.simulator.fleet.profile import KernelProfile, Range
from moorage.simulator.fleet.statistics import FleetStatistics

_SHUTDOWN_NOTICE_S = 5.0
# Each agent sends its usage once in this period; the agents take turns.
USAGE_EVERY_S = 15.0


@dataclass(frozen=True, slots=True)
class FleetConfig:
    """Settings of a fleet. ``ramp_s``: seconds over which the agents connect, evenly spaced.
    ``coalesce_s``: coalescing window for reports, in seconds. ``serve``: kernels with a port answer
    requests there in OpenAI's format; otherwise the port refuses connections. ``cpu`` (1/1000 of a
    CPU) and ``mem`` (bytes) per agent; None means as in ``fake:`` inventories."""

    agents: int = 10
    gpus: int = 8
    model: str = "H100"
    cpu: int | None = None
    mem: int | None = None
    prefix: str = "sim-"
    runtimes: tuple[str, ...] = (*RUNTIMES, *filter(None, map(isolated_name, RUNTIMES)))
    engines: tuple[str, ...] = ENGINES
    seed: int = 0
    ramp_s: float = 0.0
    coalesce_s: float = 0.01
    serve: bool = False


class FleetSimulation:
    """A fleet as an async context manager. The agents connect when it is entered (see
    ``FleetConfig.ramp_s``); when it is left, they stop their kernels and report that.

    ``settings`` supplies the manager's address, the resource group, the agents' address and labels,
    and the report interval. ``home``: the state directory that a manager on this host must have;
    None means any. Raises ``StartupError`` when no port can be bound.
    """

    def __init__(
        self,
        config: FleetConfig,
        profile: KernelProfile,
        faults: Faults,
        settings: AgentSettings,
        *,
        clock: Clock,
        token: str,
        home: Path | None = None,
    ) -> None:
        self.config = config
        self.faults = faults
        self.statistics = FleetStatistics(agents=config.agents)
        self._profile = replace(
            profile,
            fail_start=faults.fail_start,
            fail_run=faults.fail_run,
            hang_stop=faults.hang_stop,
        )
        self._settings = settings
        self._clock = clock
        self._token = token
        self._home = home
        self._rng = random.Random(f"{config.seed}/faults")
        self._agents: list[_LinkedAgent] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> FleetSimulation:
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def _start(self, stack: AsyncExitStack) -> None:
        listener = StubModelServer if self.config.serve else RefusingPort
        port = await stack.enter_async_context(listener(self._settings.address))
        context = SimulationContext(
            profile=self._profile,
            timers=asyncio.get_running_loop(),
            clock=self._clock,
            statistics=self.statistics,
            port=port,
            coalesce_s=self.config.coalesce_s,
            lose_report=self.faults.lose_report,
        )
        self._agents = [
            _LinkedAgent(self._info(number), context, self._make_link, self.config.seed)
            for number in range(self.config.agents)
        ]
        stack.push_async_callback(self._close)
        tasks = [
            spawn("simulate.ramp", self._ramp()),
            spawn("simulate.usage", self._send_usage()),
        ]
        for name, every_s, inject in (
            ("disconnect", self.faults.disconnect_every_s, self._disconnect),
            ("death", self.faults.die_every_s, self._die),
        ):
            if every_s:
                tasks.append(spawn(f"simulate.{name}", self._inject_repeatedly(every_s, inject)))

        stack.push_async_callback(cancel_and_wait, *tasks)

    async def _close(self) -> None:
        await asyncio.gather(*(agent.close() for agent in self._agents))

    def _info(self, number: int) -> AgentInfo:
        config = self.config
        settings = self._settings
        agent_id = AgentId(f"{config.prefix}{number:0{len(str(max(config.agents - 1, 1)))}}")
        capacities = {"cpu": config.cpu, "mem": config.mem}
        offers = tuple(
            offer
            if (capacity := capacities.get(offer.slot)) is None
            else replace(offer, capacity=capacity)
            for offer in FakeInventory(config.gpus, config.model, agent_id).offers()
        )

        return AgentInfo(
            agent_id=agent_id,
            resource_group=settings.resource_group,
            address=settings.address,
            version=__version__,
            arch=platform.machine(),
            runtimes=config.runtimes,
            engines=config.engines,
            offers=offers,
            labels=dict(settings.labels),
            # It is the same in every simulation, as if the agent had kept its state directory.
            identity=f"simulated-{agent_id}",
        )

    def _make_link(self, agent: SimulatedAgent, connected: Callable[[bool], None]) -> LinkClient:
        return LinkClient(
            Dialer(self._settings.manager, token=self._token, home=self._home, clock=self._clock),
            clock=self._clock,
            interval_s=self._settings.report_interval_s,
            stream_numbers=agent.streams,
            make_report=agent.report,
            apply_orders=agent.apply_orders,
            open_log=agent.open_log,
            on_connect=lambda: connected(True),
            on_disconnect=lambda: connected(False),
        )

    async def _ramp(self) -> None:
        started = self._clock.monotonic()
        for number, agent in enumerate(self._agents):
            wait_s = (
                started + self.config.ramp_s * number / len(self._agents) - self._clock.monotonic()
            )
            if wait_s > 0.001:
                await asyncio.sleep(wait_s)
            agent.connect()

    async def _send_usage(self) -> None:
        while True:
            for agent in self._agents:
                agent.send_usage()
                await asyncio.sleep(USAGE_EVERY_S / len(self._agents))

    # Fault injection.

    async def _inject_repeatedly(
        self, every_s: float, inject: Callable[[_LinkedAgent], None]
    ) -> None:
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / every_s))
            up = [agent for agent in self._agents if agent.up]
            if up:
                inject(self._rng.choice(up))

    def _disconnect(self, agent: _LinkedAgent) -> None:
        self.statistics.faults["disconnect"] += 1
        agent.interrupt(Range(0, 1).draw(self._rng))

    def _die(self, agent: _LinkedAgent) -> None:
        reboot = self._rng.random() < self.faults.reboot
        lose_checkpoint = not reboot and self._rng.random() < self.faults.lose_checkpoint
        kind = "reboot" if reboot else "lost-checkpoint" if lose_checkpoint else "death"
        self.statistics.faults[kind] += 1
        agent.interrupt(
            self.faults.down_s.draw(self._rng),
            lambda: agent.simulated.die(reboot=reboot, lose_checkpoint=lose_checkpoint),
        )


class _LinkedAgent:
    """A simulated agent and its link, which faults interrupt."""

    def __init__(
        self,
        info: AgentInfo,
        context: SimulationContext,
        make_link: Callable[[SimulatedAgent, Callable[[bool], None]], LinkClient],
        seed: int,
    ) -> None:
        rng = random.Random(f"{seed}/{info.agent_id}")
        self.simulated = SimulatedAgent(info, context, rng, changed=self._changed)
        self._statistics = context.statistics
        self._make_link = make_link
        self._link: LinkClient | None = None
        self._task: SupervisedTask | None = None
        self._interruption: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[bool] | None = None
        self._connected = False

    @property
    def up(self) -> bool:
        """Whether it has a link and is not being interrupted."""
        return self._link is not None and self._interruption is None

    def connect(self) -> None:
        self._link = self._make_link(self.simulated, self._note_connection)
        self._task = SupervisedTask(
            "simulate.link", self._link.run, key=self.simulated.info.agent_id
        )

    def send_usage(self) -> None:
        """Send the usage of the node, unless the last one has not been sent yet."""
        link = self._link
        is_sending = self._sending is not None and not self._sending.done()
        if link is not None and link.wants_usage and not is_sending:
            self._sending = spawn("simulate.usage", link.send_usage(self.simulated.usage))

    def interrupt(self, down_s: float, fault: Callable[[], None] = lambda: None) -> None:
        """Cut the connection now, apply ``fault``, and connect again after ``down_s`` seconds."""
        name = f"simulate.interrupt.{self.simulated.info.agent_id}"
        self._interruption = spawn(name, self._interrupt(down_s, fault))

    async def close(self) -> None:
        """Stop the kernels, and report that if connected."""
        await cancel_and_wait(self._interruption, self._sending)
        self.simulated.drain()
        if self._link is not None:
            await self._link.send_shutdown_notice(_SHUTDOWN_NOTICE_S)
        await self._cut()
        self.simulated.close()

    async def _interrupt(self, down_s: float, fault: Callable[[], None]) -> None:
        await self._cut()
        fault()
        await asyncio.sleep(down_s)
        self._interruption = None
        self.connect()

    async def _cut(self) -> None:
        self._link = None
        if self._task is not None:
            await self._task.close()

    def _changed(self, within_s: float) -> None:
        if self._link is not None:
            self._link.schedule_report(within_s)

    def _note_connection(self, connected: bool) -> None:
        self._statistics.connected += connected - self._connected
        self._connected = connected
