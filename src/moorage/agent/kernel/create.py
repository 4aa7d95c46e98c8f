"""Steps of a kernel's creation: requirements, ports, image, device memory, workspace, start.

Each step takes the agent's context and the kernel's record or spec and returns a value.
``KernelTask`` runs the steps in order, keeps the record and writes the checkpoint. A step raises
``StartRefused`` if the kernel cannot start on this node.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from moorage.agent import models
from moorage.agent.devices import VendorFailed
from moorage.agent.engines import ENGINES, Engine, Invocation, needs_port
from moorage.agent.kernel import preflight
from moorage.agent.kernel.checkpoint import KernelRecord
from moorage.agent.kernel.context import AgentContext
from moorage.agent.kernel.interruption import Interruption
from moorage.agent.kernel.launch import LaunchContext, build_invocation, build_launch
from moorage.agent.kernel.start_trace import program_traceparent
from moorage.agent.runtimes import CreateFailed, Handle, Launch, Runtime, RuntimeFailed
from moorage.agent.runtimes.base import failed_write
from moorage.agent.state.ports import NoFreePort
from moorage.agent.tasks import runner_source
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.service_ports import AppPort, ServicePort

if TYPE_CHECKING:
    from moorage.agent.kernel.readiness import ReadinessCheck

T = TypeVar("T")
# Enough to contain the newest stage of a start.
_LOG_TAIL_BYTES = 4096
# How long an agent that is shutting down waits for a kernel to start.
CREATE_GRACE_S = 15.0


class StartRefused(Exception):
    """The kernel cannot start on this node and ends for this reason."""

    def __init__(self, reason: Reason, detail: str) -> None:
        self.reason = reason
        self.detail = detail


def select_runtime(context: AgentContext, spec: KernelSpec) -> tuple[Runtime, Engine]:
    runtimes = context.runtimes
    if spec.runtime not in runtimes or spec.runtime not in context.offered:
        known = ", ".join(sorted(context.offered.intersection(runtimes)))
        raise StartRefused(
            Reason.CREATE_FAILED, f"this agent has no runtime {spec.runtime!r}; it has: {known}"
        )

    if spec.engine not in ENGINES:
        known = ", ".join(ENGINES)
        raise StartRefused(
            Reason.ENGINE_MISSING, f"this agent has no engine {spec.engine!r}; it has: {known}"
        )

    return runtimes[spec.runtime], ENGINES[spec.engine]


async def check_requirements(context: AgentContext, spec: KernelSpec) -> None:
    capabilities = context.capabilities(spec)
    if unsupported := preflight.find_unsupported(spec, capabilities):
        raise StartRefused(Reason.CREATE_FAILED, unsupported)
    # The check reads the disk, so it runs in a thread. `custom` has no known requirements and needs
    # no thread.
    if spec.engine == "custom" or not capabilities.node_processes:
        return
    unmet = await asyncio.to_thread(preflight.find_unmet_requirement, spec, context.node)
    if unmet is not None:
        raise StartRefused(*unmet)


def allocate_main_port(context: AgentContext, record: KernelRecord) -> KernelRecord:
    """Allocate a port on this node for the kernel's main program, if it needs one."""
    if not needs_port(record.spec) or context.capabilities(record.spec).own_address:
        return record
    try:
        port = context.ports.allocate(avoid={port.port for port in record.spec.ports})
    except NoFreePort as error:
        raise StartRefused(Reason.PORT_TAKEN, str(error)) from None
    return replace(record, port=port)


def allocate_service_ports(
    context: AgentContext, record: KernelRecord, ports: Sequence[ServicePort]
) -> KernelRecord:
    """Allocate a port on the node for each of these service ports. Kernels with their own address
    choose their ports when they start."""
    if context.capabilities(record.spec).own_address:
        apps = tuple(
            AppPort(
                port.name,
                0,
                protocol=port.protocol,
                base_path=port.base_path,
                inner=0,
                guarded=port.guarded,
            )
            for port in ports
        )
        return replace(record, apps=(*record.apps, *apps))

    used_inside = {record.port, *(app.inner for app in record.apps)}
    try:
        apps = context.ports.allocate_service_ports(
            ports, contained=context.is_contained(record.spec), used_inside=used_inside
        )
    except NoFreePort as error:
        raise StartRefused(Reason.PORT_TAKEN, str(error)) from None

    return replace(record, apps=(*record.apps, *apps))


async def write_intent(context: AgentContext, record: KernelRecord) -> None:
    """Record the intent to start before anything is started, so that an agent that dies in between
    never starts the kernel a second time."""
    try:
        await asyncio.to_thread(context.checkpoint.write, record)
    except OSError as error:
        raise StartRefused(
            failed_write(error.errno), f"the agent cannot write its checkpoint: {error}"
        ) from None


async def fetch_model(
    context: AgentContext,
    spec: KernelSpec,
    on_progress: Callable[[str], None],
    interruption: Interruption,
) -> models.FetchedModel | None:
    """Fetch a model from a hub. None means that it needs no fetching, or that the download was
    interrupted.

    This precedes the recorded intent to start, so that an agent that is restarted in between
    continues where it was. A kernel with its own user could not read the cache.
    """
    capabilities = context.capabilities(spec)
    if capabilities.model_mounts:
        cache = context.model_cache
        if cache is None or not models.is_shared(spec):
            return None

        work = failure_as_value(lambda: models.fetch_shared(spec, cache, os.environ, on_progress))
    elif not capabilities.node_processes or not models.is_fetched(spec):
        return None
    elif context.has_own_user(spec):
        if spec.engine == "vllm":
            return None  # the container fetches its model into its own cache

        detail = (
            f"{spec.model!r} is on a hub, and kernels with their own user cannot read the cache"
        )
        raise StartRefused(Reason.MODEL_MISSING, f"{detail}: give the path of a file on this node")
    elif spec.isolated:
        return None  # the kernel is refused, so nothing runs with its variables as the agent's user
    else:
        work = failure_as_value(lambda: _fetch(spec, on_progress))

    found = await interruption.run(f"fetch.{spec.kernel_id}", work)
    if isinstance(found, CreateFailed):
        raise StartRefused(found.reason, str(found))

    return found


async def _fetch(
    spec: KernelSpec, on_progress: Callable[[str], None]
) -> models.FetchedModel | None:
    return models.FetchedModel(await models.fetch(spec, os.environ, on_progress))


async def prepare_image(
    runtime: Runtime,
    launch: Launch,
    on_progress: Callable[[str], None],
    interruption: Interruption,
) -> tuple[ServicePort, ...]:
    """Fetch the image if the runtime needs it, unless interrupted. Returns the service ports of the
    image."""
    work = failure_as_value(lambda: runtime.prepare(launch, on_progress))
    prepared = await interruption.run(f"prepare.{launch.kernel_id}", work)
    if isinstance(prepared, CreateFailed):
        raise StartRefused(prepared.reason, str(prepared))

    return prepared or ()


def prepare_launch(
    context: AgentContext,
    record: KernelRecord,
    engine: Engine,
    model: models.FetchedModel | None = None,
) -> Launch:
    """Prepare the launch. ``model``: the path of the kernel's model, if one was fetched."""
    spec = record.spec if model is None else replace(record.spec, model=model.path)
    if spec.traceparent:
        spec = replace(spec, traceparent=program_traceparent(context.tracer, spec))

    launch_context = _launch_context(context, spec)
    call = build_invocation(
        engine, spec, port=record.port, context=launch_context, apps=record.apps
    )
    launch = build_launch(spec, call, port=record.port, context=launch_context, apps=record.apps)
    if model is not None and model.folder:
        launch = replace(launch, model_folder=model.folder, paths=())

    if spec.inputs:
        launch = replace(
            launch,
            inputs={input_.path: str(context.outputs.path(input_)) for input_ in spec.inputs},
        )

    return _restricted_to_its_devices(context, spec, launch)


def _restricted_to_its_devices(context: AgentContext, spec: KernelSpec, launch: Launch) -> Launch:
    """Add the device vendors' variables, which the user cannot override."""
    capabilities = context.capabilities(spec)

    # A site assigns its own devices, and an empty variable would hide them.
    if context.devices is None or capabilities.own_address:
        return launch

    try:
        variables = context.devices.environment(spec, contained=capabilities.contained)
    except VendorFailed as error:
        raise StartRefused(Reason.CREATE_FAILED, str(error)) from None

    launch = replace(launch, env=launch.env | variables)
    # Container runtimes expose devices themselves, and support only NVIDIA's.
    return (
        launch
        if capabilities.devices
        else replace(launch, places=context.devices.places(launch.devices))
    )


async def wait_for_device_memory(
    context: AgentContext,
    spec: KernelSpec,
    on_waiting: Callable[[str], None],
    interruption: Interruption,
) -> None:
    """Wait until earlier users of the kernel's devices have released their memory, or until
    interrupted."""
    check = context.memory_release
    devices = frozenset(grant.device_id for grant in spec.devices if grant.device_id)
    if check is None or not devices or context.is_simulated(spec):
        return

    waiting = check.wait(spec.kernel_id, devices, on_waiting)
    refusal = await interruption.run(f"device-memory.{spec.kernel_id}", waiting)
    if refusal is not None:
        raise StartRefused(refusal.reason, refusal.detail)


async def create_directories(context: AgentContext, spec: KernelSpec) -> None:
    """Create the kernel's workspace and, for a container, its progress directory."""
    work_dir = context.work_dir(spec)
    contained = context.is_contained(spec)
    if context.is_simulated(spec) or not (spec.workspace or contained):
        return

    try:
        await asyncio.to_thread(context.workspaces.create, spec, contained, work_dir)
        if contained:
            await asyncio.to_thread(context.workspaces.create_progress, spec)
    except OSError as error:
        raise StartRefused(
            Reason.CREATE_FAILED, f"cannot create its directories on this node: {error}"
        ) from None


async def start(runtime: Runtime, launch: Launch) -> Handle | CreateFailed:
    """Start the kernel. A cancellation takes effect only after ``Runtime.create`` has returned, or
    after ``CREATE_GRACE_S``, so that a half-started kernel is complete enough for the agent's next
    run to find it. A site that does not answer must not prevent the agent from exiting; the agent
    is then treated as killed."""
    creating = spawn(f"create.{launch.kernel_id}", failure_as_value(lambda: runtime.create(launch)))
    try:
        return await asyncio.shield(creating)
    except asyncio.CancelledError:
        _, unfinished = await asyncio.wait([creating], timeout=CREATE_GRACE_S)
        await cancel_and_wait(*unfinished)
        raise


def readiness_check(
    context: AgentContext,
    record: KernelRecord,
    engine: Engine,
    address: tuple[str, int] | None = None,
) -> ReadinessCheck | None:
    """A kernel's readiness check. None means that the kernel is ready as soon as it runs.
    ``address``: where it listens, if not on this node."""
    probes = _invocation(context, record, engine).probes
    if not probes or context.is_simulated(record.spec):
        return None

    # Imported here because the HTTP client takes 10 MB, which a node with only batch kernels does
    # not need.
    from moorage.agent.kernel.readiness import ReadinessCheck

    host, port = address or (context.host, record.port)
    host = f"[{host}]" if ":" in host else host
    handle = record.handle
    runtime = context.runtimes.get(record.spec.runtime)

    async def read_log() -> str:
        try:
            return (
                ""
                if handle is None or runtime is None
                else await runtime.log_tail(handle, _LOG_TAIL_BYTES)
            )
        except (OSError, RuntimeFailed):
            return ""

    interval_s = context.capabilities(record.spec).check_interval_s
    return ReadinessCheck(
        engine, probes, base_url=f"http://{host}:{port}", read_log=read_log, interval_s=interval_s
    )


async def failure_as_value(work: Callable[[], Awaitable[T]]) -> T | CreateFailed:
    """Return an expected failure as a value, because an exception would be logged as a failed
    task."""
    try:
        return await work()
    except CreateFailed as error:
        return error


def _launch_context(context: AgentContext, spec: KernelSpec) -> LaunchContext:
    capabilities = context.capabilities(spec)
    return LaunchContext(
        contained=capabilities.contained,
        host=context.host,
        node=preflight.with_prepared(context.node) if spec.engine == "vllm" else context.node,
        work_dir=str(context.work_dir(spec)),
        agent_env=os.environ,
        workspace=str(context.workspaces.path(spec, capabilities.contained) or ""),
        own_user=context.has_own_user(spec),
        own_address=capabilities.own_address,
        overlay=capabilities.overlay,
        progress=str(context.workspaces.progress(spec)) if capabilities.contained else "",
        started_at=None if capabilities.own_address else context.clock.now(),
        task_runner=runner_source() if spec.tasks is not None else "",
    )


def _invocation(context: AgentContext, record: KernelRecord, engine: Engine) -> Invocation:
    spec = record.spec
    return build_invocation(
        engine, spec, port=record.port, context=_launch_context(context, spec), apps=record.apps
    )
