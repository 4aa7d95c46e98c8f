"""The agent as one object: what it is made of, started and stopped in order."""

from __future__ import annotations

import asyncio
import fcntl
import os
import platform
import re
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from moorage import __version__
from moorage.agent.devices import (
    DeviceHealthMonitor,
    DeviceManager,
    FencedInventory,
    NvidiaVendor,
    installed_vendors,
    load_inventory,
)
from moorage.agent.devices.usage import UsageSampler
from moorage.agent.execution.workspaces import WorkspaceAnswers
from moorage.agent.kernel import preflight
from moorage.agent.kernel.context import Surroundings
from moorage.agent.kernel.manager import Keeper
from moorage.agent.link.client import Link
from moorage.agent.runtimes import FakeRuntime, ProcessRuntime, Runtime, RuntimeFailed, procfs
from moorage.agent.runtimes.docker.availability import RuntimeAvailability, docker_runtime, tidy
from moorage.agent.state.checkpoint import Begun, Ledger
from moorage.agent.state.logs import LogStore
from moorage.agent.state.ports import Ports
from moorage.agent.state.workspaces import Workspaces
from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link.dial import RENEWAL_LOOK_S, Dialer, dialer_for
from moorage.common.link.messages import AgentInfo, Report, SlotOffer
from moorage.common.model.errors import ConfigError, StartupError
from moorage.common.model.ids import AgentId
from moorage.common.model.slots import parse_size

if TYPE_CHECKING:
    from moorage.common.config.settings import AgentSettings, CommonSettings

log = structlog.get_logger("moorage.agent")
_INVENTORY_S, _LOOK_AROUND_S, _TIDY_S, _DEVICES_S = 30.0, 60.0, 60.0, 5.0
_Loop = tuple[str, Callable[[], Awaitable[None]], float]
_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")


class Agent:
    """Use as an async context manager.

    ``home`` is the state directory of the installation (``common.home`` if left out); the agent keeps its own
    state in ``home/agent-<id>``. ``ready`` is called each time orders are taken in on a new connection.

    Starting raises ``ConfigError`` or ``StartupError``; a manager that is away is no error.
    """

    def __init__(
        self,
        settings: AgentSettings,
        common: CommonSettings,
        *,
        clock: Clock,
        link_token: str | None = None,
        home: Path | None = None,
        ready: Callable[[], None] | None = None,
    ) -> None:
        self._settings, self._clock = settings, clock
        self._token = link_token or common.link_token or ""
        self._ready = ready or (lambda: None)
        self.id = AgentId(_agent_id(settings))
        self._home, self._link_tls = (home or common.home).expanduser(), common.link_tls
        self.state = self._home / f"agent-{self.id}"
        self.incarnation = clock.new_id()
        self._runtimes: dict[str, Runtime] = {}
        # Where all is pretended, nothing real is looked at.
        pretended = settings.inventory.startswith("fake:")
        self._devices = DeviceManager(() if pretended else (NvidiaVendor(), *installed_vendors()))
        self._care = None if pretended else self._take_care()
        offered = load_inventory(
            settings.inventory,
            self._devices,
            gpus=settings.gpus,
            reserved_mem=settings.reserved_mem,
            owner=self.id,
        )
        self._inventory = FencedInventory(offered, self._care.fences) if self._care else offered
        self._site = preflight.this_site(settings.vllm_command, settings.vllm_image)
        self._offers: tuple[SlotOffer, ...] = ()
        self._engines: tuple[str, ...] = ()
        self._docker: RuntimeAvailability | None = None
        self._offered: tuple[str, ...] = ()
        self._stack = AsyncExitStack()
        self._link: Link | None = None
        self._keeper: Keeper | None = None
        self._begun: Begun | None = None
        self._leaving = False
        self.metrics_address = ""
        """Where its metrics are, once it runs; "" for nowhere."""

    async def __aenter__(self) -> Agent:
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._link is not None
        assert self._keeper is not None
        try:
            if self._settings.stop_kernels_on_exit:
                self._keeper.draining = True
                self._link.changed()
                await self._keeper.drain()
            # Also where kernels go on: what is placed here now would wait for the next agent.
            self._leaving = True
            await self._link.farewell()
        finally:
            await self._stack.aclose()

    def report(self) -> Report:
        """The whole truth at this moment."""
        assert self._keeper is not None
        assert self._begun is not None
        info = AgentInfo(
            agent_id=self.id,
            resource_group=self._settings.resource_group,
            address=self._settings.address,
            version=__version__,
            arch=platform.machine(),
            runtimes=self._offered,
            engines=self._engines,
            offers=self._offers,
            labels=dict(self._settings.labels),
            identity=self._begun.identity,
            max_kernels=self._settings.max_kernels,
            share_quantum=round(1000 * self._settings.share_quantum),
            share_minimum=round(1000 * self._settings.share_minimum),
        )
        keeper = self._keeper
        return Report(
            info, self.incarnation, keeper.taken, keeper.observations(), keeper.draining or self._leaving
        )

    async def _start(self, stack: AsyncExitStack) -> None:
        settings, clock = self._settings, self._clock
        dialer = dialer_for(
            "agent",
            self.id,
            settings.manager,
            link_tls=self._link_tls,
            token=self._token,
            home=self._home,
            clock=clock,
        )
        await stack.enter_async_context(_Lock(self.state, self.id))
        ports = Ports(settings.port_range, settings.address, clock=clock, seed=self.id)
        await asyncio.to_thread(ports.check_host)
        ledger = Ledger(self.state)
        begun = self._begun = await asyncio.to_thread(ledger.begin, clock)
        logs = LogStore(self.state / "logs")
        process = ProcessRuntime(
            self.state, logs, log_max_bytes=settings.log_max_bytes, log_keep_files=settings.log_keep_files
        )
        stack.callback(process.close)
        pretending = await self._probe((process, FakeRuntime(logs)))
        docker = await asyncio.to_thread(docker_runtime, settings, self.state, logs, clock)
        if docker is not None:
            # Known even while its engine is away: what runs there is kept, and looked for.
            self._runtimes[docker.name] = docker
            self._docker = RuntimeAvailability(docker, clock)
            stack.push_async_callback(docker.close)
        around = Surroundings(
            clock=clock,
            ledger=ledger,
            ports=ports,
            logs=logs,
            runtimes=self._runtimes,
            pretending=pretending,
            site=self._site,
            host=settings.address,
            work_dir=process.work_dir,
            workspaces=Workspaces(self.state),
            contained=frozenset({"docker"}),
            devices=self._devices if self._care else None,
            gate=self._care.memory_release if self._care else None,
        )
        await self._look()
        keeper = self._keeper = Keeper(around, changed=lambda within_s: link.changed(within_s))
        link = self._link = self._make_link(dialer, keeper, begun)
        stack.push_async_callback(keeper.close)
        await keeper.recover()
        stack.push_async_callback(cancel_and_wait, spawn("agent.link", link.run()))
        tidying = ("agent.tidy", lambda: tidy(docker), _TIDY_S)
        await self._begin_loops(stack, dialer, keeper, link, tidying)
        log.info("agent started", agent=self.id, state=str(self.state), engines=",".join(self._engines))

    async def _begin_loops(
        self, stack: AsyncExitStack, dialer: Dialer, keeper: Keeper, link: Link, *more: _Loop
    ) -> None:
        looking = Loop("agent.inventory", self._look, interval_s=_INVENTORY_S, clock=self._clock)
        loops: list[_Loop] = [
            *more,
            ("agent.look-around", keeper.look_around, _LOOK_AROUND_S),
            ("agent.certificate", dialer.renew, RENEWAL_LOOK_S),
            *await self._measure(stack, keeper, link),
        ]
        if self._care is not None:
            self._care.fences.changed = looking.nudge
            loops.append(("agent.devices", self._care.check, _DEVICES_S))
        await stack.enter_async_context(looking)
        for name, tick, interval_s in loops:
            await stack.enter_async_context(Loop(name, tick, interval_s=interval_s, clock=self._clock))

    def _make_link(self, dialer: Dialer, keeper: Keeper, begun: Begun) -> Link:
        return Link(
            dialer,
            clock=self._clock,
            interval_s=self._settings.report_interval_s,
            streams=begun.streams(),
            report=self.report,
            take=keeper.take,
            logs=keeper.logs,
            execs=keeper.exec,
            workspaces=WorkspaceAnswers(Workspaces(self.state), keeper.sessions).answer,
            connected=self._ready,
        )

    def _take_care(self) -> DeviceHealthMonitor:
        settings = self._settings
        return DeviceHealthMonitor(
            self._devices,
            self._clock,
            runtimes=self._runtimes,
            running=lambda: self._keeper.measured() if self._keeper is not None else {},
            probation_s=settings.device_probation_s,
            free_bytes=parse_size(settings.device_free_mem),
            free_timeout_s=settings.device_free_timeout_s,
        )

    async def _measure(self, stack: AsyncExitStack, keeper: Keeper, link: Link) -> tuple[_Loop, ...]:
        interval_s = self._settings.stats_interval_s
        sampler = self._sampler(keeper, link) if interval_s else None
        if self._settings.metrics_listen is not None:
            # Only here: who wants none needs no package for them.
            from moorage.agent.metrics import AgentMetrics, served

            metrics = AgentMetrics(
                sampler=sampler,
                offers=lambda: self._offers,
                kernels=keeper.states,
                connected=lambda: link.connected,
            )
            at = await stack.enter_async_context(served(self._settings.metrics_listen, metrics.text))
            self.metrics_address = at
        if sampler is None:
            return ()
        stack.push_async_callback(sampler.close)
        return (("agent.stats", sampler.tick, interval_s),)

    def _sampler(self, keeper: Keeper, link: Link) -> UsageSampler:
        return UsageSampler(
            self.id,
            self.incarnation,
            clock=self._clock,
            runtimes=self._runtimes,
            running=keeper.measured,
            devices=lambda: {o.device_id: o.parent for o in self._offers if o.device_id},
            meter=self._devices,
            send=link.send_usage,
        )

    async def _probe(self, runtimes: tuple[Runtime, ...]) -> frozenset[str]:
        pretending = set()
        for runtime in runtimes:
            try:
                capabilities = await runtime.probe()
            except RuntimeFailed as error:
                log.warning("a runtime cannot be used here", runtime=runtime.name, why=str(error))
                continue
            self._runtimes[runtime.name] = runtime
            if not capabilities.runs_engines:
                pretending.add(runtime.name)
        return frozenset(pretending)

    async def _look(self) -> None:
        """Look at the node again; what changed is reported at once."""
        offers = await asyncio.to_thread(self._inventory.offers)
        engines = await asyncio.to_thread(preflight.installed, self._site)
        if self._docker is not None:
            await self._docker.look()
        away = set() if self._docker is None or self._docker.offered else {"docker"}
        offered = tuple(name for name in self._runtimes if name not in away)
        if (offers, engines, offered) != (self._offers, self._engines, self._offered):
            self._offers, self._engines, self._offered = offers, engines, offered
            if self._link is not None:
                self._link.changed()


class _Lock:
    """Two agents must never share a state directory: each would end the other's kernels."""

    def __init__(self, state: Path, agent_id: str) -> None:
        self._state, self._agent_id, self._fd = state, agent_id, -1

    async def __aenter__(self) -> None:
        try:
            self._state.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = os.open(self._state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StartupError(
                f"the agent cannot use its state directory {self._state}: {error}",
                next_step="set common.home (MOORAGE_HOME) to a directory that it may write",
            ) from None
        for attempts_left in reversed(range(40)):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pid = os.pread(fd, 32, 0).decode(errors="replace").strip()
                # An agent that was killed just as it began a kernel leaves the lock, for a moment, to a
                # process that has not become the kernel's supervisor yet. To wait for it is right: before,
                # it could not be found.
                holder = procfs.stat(int(pid)) if pid.isdigit() else None
                if attempts_left and not (holder and holder.alive):
                    await asyncio.sleep(0.05)
                    continue
                os.close(fd)
                raise StartupError(
                    f"agent {self._agent_id!r} runs already, as process {pid}: it holds {self._state}",
                    next_step="stop it, or give this one another agent.id",
                ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd

    async def __aexit__(self, *exc: object) -> None:
        os.close(self._fd)


def _agent_id(settings: AgentSettings) -> str:
    agent_id = settings.id or socket.gethostname()
    if not _ID.fullmatch(agent_id):
        raise ConfigError(
            f"agent.id = {agent_id!r} is not a name for an agent",
            next_step="use 1 to 128 letters, digits, dots, - and _, the first a letter or digit",
        )
    return agent_id
