"""Agent service: assembles the agent's components, and starts and stops them in order.

After a crash, the next start recovers: it loads the checkpoint, scans the runtimes, and resumes a
task for every kernel found, before it connects. Nothing is stopped before orders arrive.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from moorage import __version__
from moorage.agent.agent_id import agent_id
from moorage.agent.devices import (
    DeviceHealthMonitor,
    DeviceManager,
    FencedInventory,
    NvidiaVendor,
    installed_vendors,
    load_inventory,
)
from moorage.agent.devices.fake_inventory import FakeVendor
from moorage.agent.devices.known import GPUS_FILE, KnownDevices
from moorage.agent.devices.labels import device_labels
from moorage.agent.devices.usage import UsageSampler
from moorage.agent.dialout.client import DialOut, dial_out
from moorage.agent.execution.code.service import CodeService
from moorage.agent.execution.commands import Commands, code_place
from moorage.agent.execution.kept_workspaces import Workspaces
from moorage.agent.execution.workspaces import WorkspaceRequestHandler
from moorage.agent.kernel import preflight
from moorage.agent.kernel.checkpoint import AgentStart, CheckpointFiles
from moorage.agent.kernel.context import AgentContext
from moorage.agent.kernel.health import METRICS_S, HealthMonitor
from moorage.agent.kernel.leases import KernelLeases
from moorage.agent.kernel.manager import KernelManager
from moorage.agent.kernel.progress import ProgressReader
from moorage.agent.link.client import LinkClient
from moorage.agent.link.outputs import OutputLink
from moorage.agent.link.tasks import TaskCalls
from moorage.agent.outputs import NodeOutputs, OutputService
from moorage.agent.runtimes.registry import RuntimeRegistry
from moorage.agent.state.free_space import FREE_SPACE_S, FreeSpace
from moorage.agent.state.logs import LogStore
from moorage.agent.state.ports import PortAllocator
from moorage.agent.state_lock import StateLock
from moorage.agent.tasks import TICK_S, TaskFeeder
from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.aio.supervisor import SupervisedTask
from moorage.common.link.dial import MAINTENANCE_S, Dialer, dialer_for
from moorage.common.link.messages import AgentInfo, Report, ReportDelta, RuntimeState, SlotOffer
from moorage.common.model.ids import AgentId
from moorage.common.model.kernel import ENGINES
from moorage.common.model.slots import JOBS, parse_size
from moorage.common.telemetry import TraceSink

if TYPE_CHECKING:
    from moorage.agent.metrics import AgentMetrics
    from moorage.common.config.settings import AgentSettings, CommonSettings

log = structlog.get_logger("moorage.agent")
KERNEL_SCAN_S = 60.0
_INVENTORY_S = 30.0
_DEVICE_HEALTH_S = 5.0
_ENGINES_S = 5.0
# Name, tick, interval in seconds.
_LoopSpec = tuple[str, Callable[[], Awaitable[None]], float]


class Agent:
    """The agent, as an async context manager.

    ``home`` is the installation's state directory (default: ``common.home``), in which the agent
    keeps its own state in ``agent-<id>``. ``ready`` is called each time the first orders of a
    connection are applied. ``metrics`` is set with ``agent.metrics_listen`` while the agent runs.
    ``serves_metrics``: the agent serves them itself, at ``metrics_address``.

    Starting raises ``ConfigError`` or ``StartupError``; an unreachable manager is not an error.
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
        serves_metrics: bool = True,
        tracer: TraceSink | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._tracer = tracer
        self._token = link_token or common.link_token or ""
        self._ready = ready or (lambda: None)
        self.id = AgentId(agent_id(settings))
        self._home = (home or common.home).expanduser()
        self._link_tls = common.link_tls
        self._manager_home = common.manager_home
        self.state = self._home / f"agent-{self.id}"
        self.incarnation = clock.new_id()
        logs = LogStore(
            self.state / "logs",
            max_bytes=settings.log_max_bytes,
            keep_files=settings.log_keep_files,
        )
        self._logs = logs

        # A simulated inventory touches no real device.
        simulated = settings.inventory.startswith("fake:")
        nvidia = NvidiaVendor(KnownDevices(self.state / GPUS_FILE))
        self._nvidia = nvidia
        self._devices = DeviceManager(
            (FakeVendor(),) if simulated else (nvidia, *installed_vendors())
        )
        offered = load_inventory(
            settings.inventory,
            self._devices,
            gpus=settings.gpus,
            reserved_mem=settings.reserved_mem,
            owner=self.id,
        )
        self._runtimes = RuntimeRegistry(
            settings, self.state, home=self._home, logs=logs, clock=clock
        )
        health = None if simulated else self._monitor_devices()
        self._device_health = health
        self._inventory = FencedInventory(offered, health.fences) if health else offered
        self._node = preflight.describe_node(
            settings.vllm_command, settings.vllm_image, settings.process_env
        )
        self._offers: tuple[SlotOffer, ...] = ()
        self._driver_facts = nvidia.facts
        self._engines: tuple[str, ...] = ()
        self._offered_runtimes: tuple[str, ...] = ()
        self._runtime_problem = ""
        self._stack = AsyncExitStack()
        self._link: LinkClient | None = None
        self._dialout: DialOut | None = None
        self._kernels: KernelManager | None = None
        self._start_record: AgentStart | None = None
        self._shutting_down = False
        self._space = FreeSpace(self.state, self._report_soon)
        self.dialer: Dialer | None = None
        self.metrics: AgentMetrics | None = None
        self._serves_metrics = serves_metrics
        self.metrics_address = ""

    async def __aenter__(self) -> Agent:
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._link is not None
        assert self._kernels is not None
        try:
            if self._settings.stop_kernels_on_exit:
                self._kernels.refuse_new()
                self._link.schedule_report()
                await self._kernels.drain()

            # This is sent even if kernels keep running, because a kernel placed here now would wait
            # for the agent's next start.
            self._shutting_down = True
            await self._link.send_shutdown_notice()
        finally:
            await self._stack.aclose()

    @property
    def live_kernels(self) -> int:
        """The number of kernels that are not known to have ended."""
        return len(self._kernels.alive()) if self._kernels is not None else 0

    def _report_soon(self) -> None:
        if self._link is not None:
            self._link.schedule_report()

    def isolation(self) -> str:
        """Which users' processes run on this node, and how; empty if it runs none."""
        return self._runtimes.isolation()

    def report(self, whole: bool = True) -> Report | ReportDelta:
        """The current full report, or the changes since the last one."""
        kernels = self._kernels
        assert kernels is not None
        assert self._start_record is not None
        info = AgentInfo(
            agent_id=self.id,
            resource_group=self._settings.resource_group,
            address=self._settings.address,
            version=__version__,
            arch=platform.machine(),
            runtimes=self._offered_runtimes,
            engines=self._engines,
            offers=self._offers,
            labels=device_labels(self._offers, self._driver_facts) | self._settings.labels,
            identity=self._start_record.identity,
            max_kernels=self._settings.max_kernels,
            share_quantum=round(1000 * self._settings.share_quantum),
            share_minimum=round(1000 * self._settings.share_minimum),
            runtime_states=tuple(
                RuntimeState(name, name in kernels.listed, runtime.silence_grace_s)
                for name, runtime in self._runtimes.known.items()
            ),
            lease_runtimes=self._runtimes.with_leases(),
            suspend_runtimes=self._runtimes.with_suspension(),
            doubtful_jobs=self._runtimes.doubtful_jobs(),
            site_nodes=self._runtimes.site_nodes(),
            reach=self._settings.reach,
            undialed=self._dialout.undialed if self._dialout is not None else {},
            not_ready="; ".join(filter(None, (self._space.problem, self._runtime_problem))),
        )
        draining = kernels.draining or self._shutting_down
        changed, removed = kernels.take_changes()
        if not whole:
            generation = kernels.applied_generation
            return ReportDelta(
                self.incarnation,
                generation,
                kernels=changed,
                removed=removed,
                info=info,
                draining=draining,
            )

        return Report(
            info,
            self.incarnation,
            orders_generation=kernels.applied_generation,
            kernels=kernels.observations(),
            draining=draining,
            newest_generation=kernels.newest_generation,
        )

    def _make_dialer(self) -> Dialer:
        return dialer_for(
            "agent",
            self.id,
            self._settings.manager,
            link_tls=self._link_tls,
            token=self._token,
            home=self._home,
            manager_home=self._manager_home,
            clock=self._clock,
        )

    async def _start(self, stack: AsyncExitStack) -> None:
        settings = self._settings
        clock = self._clock
        dialer = self._make_dialer()
        self.dialer = dialer

        await stack.enter_async_context(StateLock(self.state, self.id))
        ports = PortAllocator(settings.port_range, settings.address, clock=clock, seed=self.id)
        await asyncio.to_thread(ports.check_host)
        checkpoint, start = await self._record_start()
        await self._runtimes.start(stack, start.identity)

        process = self._runtimes.process
        leases = KernelLeases(self.state, clock, lambda: link.schedule_report())
        outputs = await self._make_outputs(dialer)
        tasks = TaskFeeder(
            self.id, TaskCalls(dialer, lambda: self._link.stub if self._link else None), clock
        )
        context = AgentContext(
            clock=clock,
            checkpoint=checkpoint,
            ports=ports,
            logs=self._logs,
            runtimes=self._runtimes.known,
            node=self._node,
            host=settings.address,
            process_dir=process.work_dir,
            workspaces=Workspaces(self.state),
            leases=leases,
            devices=self._devices,
            memory_release=self._device_health.memory_release if self._device_health else None,
            offered=frozenset(settings.runtimes),
            isolates=process.isolates,
            outputs=outputs,
            tasks=tasks,
            tracer=self._tracer,
            model_cache=Path(settings.model_cache) if settings.model_cache else None,
        )

        await self._update_inventory()
        kernels = KernelManager(context, on_change=lambda within_s: link.schedule_report(within_s))
        self._kernels = kernels
        code = CodeService(
            lambda kernel_id: code_place(kernels.running(kernel_id)),
            kernels.alive,
            self.state / "code",
            clock,
        )

        dialout = dial_out(
            settings, self.id, kernels=kernels.observations, dialer=dialer, clock=clock
        )
        self._dialout = dialout
        stack.push_async_callback(dialout.close)
        commands = Commands(kernels.running, code, Workspaces(self.state).kept)

        link = self._make_link(
            dialer,
            kernels,
            commands=commands,
            start=start,
            leases=leases,
            outputs=outputs,
            dialout=dialout,
        )
        self._link = link
        stack.push_async_callback(kernels.close)
        stack.push_async_callback(code.close)

        await kernels.recover()
        stack.push_async_callback(SupervisedTask("agent.link", link.run).close)
        feeding = Loop(
            "agent.tasks",
            lambda: tasks.tick(kernels.active_kernels(), context.progress_folder),
            interval_s=TICK_S,
            clock=clock,
        )
        await stack.enter_async_context(feeding)
        progress = ProgressReader(context, kernels.active_kernels)
        await self._start_loops(
            stack, dialer, kernels=kernels, link=link, code=code, progress=progress, outputs=outputs
        )
        log.info(
            "agent started", agent=self.id, state=str(self.state), engines=",".join(self._engines)
        )

    async def _record_start(self) -> tuple[CheckpointFiles, AgentStart]:
        checkpoint = CheckpointFiles(self.state)
        start = await asyncio.to_thread(checkpoint.record_start, self._clock)
        self._start_record = start
        await self._space.check()
        return checkpoint, start

    async def _make_outputs(self, dialer: Dialer) -> OutputService:
        store = NodeOutputs(self.state, self._settings.output_max_bytes)
        await asyncio.to_thread(store.clean)
        link = OutputLink(self.id, dialer, lambda: self._link.stub if self._link else None)
        self.outputs = link
        return OutputService(
            store, link, lambda: self._kernels.sessions() if self._kernels else frozenset()
        )

    async def _start_loops(
        self,
        stack: AsyncExitStack,
        dialer: Dialer,
        kernels: KernelManager,
        link: LinkClient,
        *,
        code: CodeService,
        progress: ProgressReader,
        outputs: OutputService,
    ) -> None:
        inventory_loop = Loop(
            "agent.inventory", self._update_inventory, interval_s=_INVENTORY_S, clock=self._clock
        )
        loops: list[_LoopSpec] = [
            *self._runtimes.loops,
            ("agent.kernel-scan", kernels.scan, KERNEL_SCAN_S),
            ("agent.code", code.collect, KERNEL_SCAN_S),
            ("agent.free-space", self._space.check, FREE_SPACE_S),
            ("agent.outputs", outputs.remove_unneeded, KERNEL_SCAN_S),
            ("agent.certificate", dialer.maintain, MAINTENANCE_S),
            ("agent.engines", lambda: self._look_for_engines(inventory_loop.nudge), _ENGINES_S),
            *await self._start_statistics(stack, kernels, link, progress),
        ]
        if self._device_health is not None:
            self._device_health.fences.on_change.append(inventory_loop.nudge)
            loops.append(("agent.device-health", self._device_health.check, _DEVICE_HEALTH_S))

        await stack.enter_async_context(inventory_loop)
        for name, tick, interval_s in loops:
            await stack.enter_async_context(
                Loop(name, tick, interval_s=interval_s, clock=self._clock)
            )

    def _make_link(
        self,
        dialer: Dialer,
        kernels: KernelManager,
        commands: Commands,
        start: AgentStart,
        *,
        leases: KernelLeases,
        outputs: OutputService,
        dialout: DialOut,
    ) -> LinkClient:
        return LinkClient(
            dialer,
            clock=self._clock,
            interval_s=self._settings.report_interval_s,
            stream_numbers=start.stream_numbers(),
            make_report=self.report,
            apply_orders=kernels.apply_orders,
            open_log=outputs.opener(kernels.open_log),
            run_command=commands.run,
            handle_workspace_request=WorkspaceRequestHandler(
                Workspaces(self.state), kernels.sessions
            ).handle,
            on_connect=self._ready,
            leases=leases,
            on_proxies=dialout.set_proxies,
        )

    def _monitor_devices(self) -> DeviceHealthMonitor:
        settings = self._settings
        return DeviceHealthMonitor(
            self._devices,
            self._clock,
            runtimes=self._runtimes.known,
            running=lambda: self._kernels.active_kernels() if self._kernels is not None else {},
            probation_s=settings.device_probation_s,
            free_bytes=parse_size(settings.device_free_mem),
            free_timeout_s=settings.device_free_timeout_s,
        )

    async def _start_statistics(
        self,
        stack: AsyncExitStack,
        kernels: KernelManager,
        link: LinkClient,
        progress: ProgressReader,
    ) -> tuple[_LoopSpec, ...]:
        interval_s = self._settings.stats_interval_s
        health_s = self._settings.health_interval_s
        health = HealthMonitor(
            kernels.serving,
            kernels.set_health,
            clock=self._clock,
            period_s=health_s,
            is_unreachable=kernels.is_unreachable,
        )
        stack.push_async_callback(health.close)
        sampler = self._make_sampler(kernels, link, health, progress) if interval_s else None
        loops: list[_LoopSpec] = (
            [("agent.health", health.tick, min(METRICS_S, health_s))] if health_s else []
        )

        if self._settings.metrics_listen is not None:
            # Imported here because the packages are needed only with this setting.
            from moorage.agent.metrics import AgentMetrics, page_of, serve_metrics

            metrics = AgentMetrics(
                sampler=sampler,
                offers=lambda: self._offers,
                kernels=kernels.states,
                connected=lambda: link.connected,
                doubtful_jobs=self._runtimes.doubtful_jobs,
            )
            self.metrics = metrics
            if self._serves_metrics:
                self.metrics_address = await stack.enter_async_context(
                    serve_metrics(self._settings.metrics_listen, page_of(metrics))
                )

        if sampler is not None:
            stack.push_async_callback(sampler.close)
            loops.append(("agent.progress", progress.tick, max(1.0, interval_s)))
            loops.append(("agent.stats", sampler.tick, interval_s))

        return tuple(loops)

    def _make_sampler(
        self,
        kernels: KernelManager,
        link: LinkClient,
        health: HealthMonitor,
        progress: ProgressReader,
    ) -> UsageSampler:
        return UsageSampler(
            self.id,
            self.incarnation,
            clock=self._clock,
            runtimes=self._runtimes.known,
            running=kernels.active_kernels,
            devices=lambda: {o.device_id: o.parent for o in self._offers if o.device_id},
            meter=self._devices,
            send=link.send_usage,
            wanted=lambda: link.wants_usage,
            engines=health.loads,
            progress=progress.values,
        )

    async def _offers_of_node(self) -> tuple[tuple[SlotOffer, ...], tuple[str, ...]]:
        """What this node offers and its installed engines, or the offers of a batch runtime's site,
        whose jobs bring their own engines."""
        if (jobs := self._runtimes.max_jobs) is not None:
            return (SlotOffer(JOBS, jobs),), ENGINES
        offers = await asyncio.to_thread(self._inventory.offers)
        return offers, await asyncio.to_thread(preflight.installed_engines, self._node)

    async def _look_for_engines(self, nudge: Callable[[], None]) -> None:
        if self._runtimes.max_jobs is None:
            found = await asyncio.to_thread(preflight.installed_engines, self._node)
            if found != self._engines:
                nudge()

    async def _update_inventory(self) -> None:
        """Query devices, engines and runtimes again, and report changes immediately."""
        offers, engines = await self._offers_of_node()
        offered_runtimes = await self._runtimes.refresh()

        if self._kernels is not None and not self._kernels.listed.issuperset(
            self._runtimes.offered
        ):
            # the runtime answers again and may have kernels that the checkpoint lost
            await self._kernels.scan()

        now = offers, engines, offered_runtimes, self._nvidia.facts
        problem = self._runtimes.problem
        before = self._offers, self._engines, self._offered_runtimes, self._driver_facts
        if now != before or problem != self._runtime_problem:
            self._offers, self._engines, self._offered_runtimes, self._driver_facts = now
            self._runtime_problem = problem
            self._report_soon()
