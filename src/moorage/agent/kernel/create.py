"""The beginning of one kernel on this node: its checks, its port, what must be fetched, its creation."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from moorage.agent.devices import VendorFailed
from moorage.agent.engines import ENGINES, Engine, Invocation, needs_port
from moorage.agent.kernel import launch as launching
from moorage.agent.kernel import preflight
from moorage.agent.kernel.cancellable import fetch
from moorage.agent.kernel.launch import Place
from moorage.agent.kernel.outcome import Outcome
from moorage.agent.kernel.state import Course
from moorage.agent.kernel.teardown import Ending
from moorage.agent.runtimes import CreateFailed, Handle, Launch, Runtime, RuntimeObservation
from moorage.agent.state.ports import NoPort
from moorage.common.aio.tasks import spawn
from moorage.common.model.reasons import Reason
from moorage.common.model.service_ports import ServicePort, merged
from moorage.common.model.status import ObservedState

if TYPE_CHECKING:
    from moorage.agent.kernel.readiness import Readiness

T = TypeVar("T")
NEVER_STARTED = "the agent was killed just before it started it"


class _Refused(Exception):
    def __init__(self, reason: Reason, detail: str) -> None:
        self.reason, self.detail = reason, detail


class Beginning:
    """``begun``: an earlier run of the agent may have started it, and its runtime could not say yet."""

    def __init__(self, course: Course, ending: Ending, *, begun: bool) -> None:
        self._course, self._ending, self._begun = course, ending, begun

    async def begin(self) -> Outcome | tuple[Runtime, Handle, Readiness | None]:
        """What it ended with before it ran; else how to watch it, and how to ask whether it is ready."""
        course = self._course
        try:
            if self._begun or course.entry.handle is not None:
                await self._have_its_runtime()
            runtime, engine = self._kinds()
            if course.entry.handle is None and self._begun:
                course.entry = replace(course.entry, handle=await self._ending.look_for(runtime))
                if course.entry.handle is None:
                    return Outcome(ObservedState.GONE, None, Reason.KERNEL_GONE, NEVER_STARTED)
                await course.remember()
            elif course.entry.handle is None:
                await self._prepare()
                launch = self._launch(engine)
                if self._place().contained and (more := await self._fetch(runtime, launch)):
                    await self._also_offer(more)
                    launch = self._launch(engine)
                await self._pass_gate()
                if course.unwanted():
                    return course.verdict(RuntimeObservation(ObservedState.GONE))
                if course.entry.spec.workspace and course.entry.spec.runtime not in course.around.pretending:
                    await self._provide()
                course.show(ObservedState.CREATING)
                course.entry = replace(course.entry, handle=await self._create(runtime, launch))
                course.unwritten = True
            assert course.entry.handle is not None
        except _Refused as refused:
            return Outcome(ObservedState.EXITED, None, refused.reason, refused.detail)
        return runtime, course.entry.handle, self._how_to_ask(engine)

    async def _have_its_runtime(self) -> None:
        """An agent that was started without the runtime of a kernel cannot know what became of it."""
        if self._course.entry.spec.runtime in self._course.around.runtimes:
            return
        self._course.log.error(
            "the runtime of a kernel from before is not there any more: it is kept, with its devices",
            runtime=self._course.entry.spec.runtime,
            next_step="start this agent with that runtime again",
        )
        self._course.show(ObservedState.UNKNOWN)
        await asyncio.Event().wait()

    def _kinds(self) -> tuple[Runtime, Engine]:
        spec, runtimes = self._course.entry.spec, self._course.around.runtimes
        if spec.runtime not in runtimes:
            known = ", ".join(runtimes)
            raise _Refused(
                Reason.CREATE_FAILED, f"this agent has no runtime {spec.runtime!r}; it has: {known}"
            )
        if spec.engine not in ENGINES:
            known = ", ".join(ENGINES)
            raise _Refused(
                Reason.ENGINE_MISSING, f"this agent knows no engine {spec.engine!r}; it knows: {known}"
            )
        return runtimes[spec.runtime], ENGINES[spec.engine]

    async def _prepare(self) -> None:
        """Checks, a port, and the intent in the ledger: after this, it is never begun a second time."""
        spec, around = self._course.entry.spec, self._course.around
        # To look on the disk takes a thread, and of `custom` nothing is known to look for.
        if spec.engine != "custom" and spec.runtime not in around.pretending and not self._place().contained:
            lack = await asyncio.to_thread(preflight.missing, spec, around.site)
            if lack is not None:
                raise _Refused(*lack)
        if needs_port(spec):
            try:
                port = around.ports.take(avoid={port.port for port in spec.ports})
            except NoPort as error:
                raise _Refused(Reason.PORT_TAKEN, str(error)) from None
            self._course.entry = replace(self._course.entry, port=port)
        self._offer(spec.ports)
        await self._intend()

    async def _intend(self) -> None:
        try:
            await asyncio.to_thread(self._course.around.ledger.write, self._course.entry)
        except OSError as error:
            raise _Refused(Reason.CREATE_FAILED, f"the agent cannot write its ledger: {error}") from None

    def _offer(self, ports: Sequence[ServicePort]) -> None:
        """Give these service ports a port of the node each."""
        entry, contained = self._course.entry, self._place().contained
        inside = {entry.port, *(app.inner for app in entry.apps)}
        try:
            given = self._course.around.ports.take_for(ports, contained=contained, inside=inside)
        except NoPort as error:
            raise _Refused(Reason.PORT_TAKEN, str(error)) from None
        self._course.entry = replace(entry, apps=(*entry.apps, *given))

    async def _also_offer(self, of_image: Sequence[ServicePort]) -> None:
        """What the image declares beside what was asked for; known only once it is here."""
        declared = self._course.entry.spec.ports
        if more := merged(declared, of_image)[len(declared) :]:
            self._offer(more)
            await self._intend()

    def _place(self) -> Place:
        around = self._course.around
        contained = self._course.entry.spec.runtime in around.contained
        entry = self._course.entry
        work_dir = str(around.work_dir(entry.kernel_id))
        workspace = around.workspaces.path(entry.spec, contained)
        return Place(contained, around.host, around.site, work_dir, os.environ, str(workspace or ""))

    async def _provide(self) -> None:
        """The directory that it works in."""
        around, spec = self._course.around, self._course.entry.spec
        work_dir = around.work_dir(spec.kernel_id)
        try:
            await asyncio.to_thread(
                around.workspaces.provide, spec, spec.runtime in around.contained, work_dir
            )
        except OSError as error:
            raise _Refused(Reason.CREATE_FAILED, f"no workspace can be made on this node: {error}") from None

    def _invocation(self, engine: Engine) -> Invocation:
        entry = self._course.entry
        return launching.invocation(engine, entry.spec, entry.port, self._place(), entry.apps)

    def _launch(self, engine: Engine) -> Launch:
        entry, call = self._course.entry, self._invocation(engine)
        launch = launching.launch(entry.spec, call, entry.port, self._place(), entry.apps)
        return self._with_devices(launch)

    async def _fetch(self, runtime: Runtime, launch: Launch) -> tuple[ServicePort, ...]:
        self._course.show(ObservedState.PREPARING)
        work = _tried(runtime.prepare(launch, self._course.tell))
        fetched = await fetch(
            f"fetch.{launch.kernel_id}", work, self._course.wished, lambda: not self._course.unwanted()
        )
        if isinstance(fetched, CreateFailed):
            raise _Refused(fetched.reason, str(fetched))
        return fetched or ()

    def _with_devices(self, launch: Launch) -> Launch:
        """How the devices of other vendors are seen. In containers only NVIDIA's can be given."""
        course = self._course
        devices, spec = course.around.devices, course.entry.spec
        if devices is None or spec.runtime in course.around.pretending or self._place().contained:
            return launch
        try:
            return replace(launch, env=launch.env | devices.environment(spec))
        except VendorFailed as error:
            raise _Refused(Reason.CREATE_FAILED, str(error)) from None

    async def _pass_gate(self) -> None:
        """Its devices are given to it when what ran there before has let go of their memory."""
        course = self._course
        gate, spec = course.around.gate, course.entry.spec
        devices = frozenset(grant.device_id for grant in spec.devices if grant.device_id)
        if gate is None or not devices or spec.runtime in course.around.pretending:
            return

        def waiting(words: str) -> None:
            course.show(ObservedState.PREPARING)
            course.tell(words)

        work = gate.wait(spec.kernel_id, devices, waiting)
        refused = await fetch(f"gate.{spec.kernel_id}", work, course.wished, lambda: not course.unwanted())
        if refused is not None:
            raise _Refused(refused.reason, refused.detail)

    async def _create(self, runtime: Runtime, launch: Launch) -> Handle:
        creating = spawn(f"create.{launch.kernel_id}", _tried(runtime.create(launch)))
        try:
            created = await asyncio.shield(creating)
        except asyncio.CancelledError:
            # The agent closes: what is half begun must be there to be found by its next start.
            await asyncio.wait([creating])
            raise
        if isinstance(created, Handle):
            return created
        if not created.clean:
            await self._ending.destroy_what_is_there(runtime)
        raise _Refused(created.reason, str(created))

    def _how_to_ask(self, engine: Engine) -> Readiness | None:
        course, probes = self._course, self._invocation(engine).probes
        if not probes or course.entry.spec.runtime in course.around.pretending:
            return None
        # Ten megabytes of HTTP client, which a node of batch programs does without.
        from moorage.agent.kernel.readiness import Readiness

        host = f"[{course.around.host}]" if ":" in course.around.host else course.around.host
        return Readiness(engine, probes, f"http://{host}:{course.entry.port}")


async def _tried(work: Coroutine[Any, Any, T]) -> T | CreateFailed:
    """A failure that is expected is an answer: it is not logged as that of a task."""
    try:
        return await work
    except CreateFailed as error:
        return error
