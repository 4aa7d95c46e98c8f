"""The trace of a kernel's start: its steps, where the trace ends, and that nothing is recorded
while tracing is off."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.traces import SESSION, Kept

from moorage.agent.kernel.checkpoint import KernelRecord
from moorage.agent.kernel.outcome import KernelOutcome
from moorage.agent.kernel.start_trace import program_traceparent, start_trace
from moorage.agent.runtimes import Handle
from moorage.common.aio.clock import SystemClock
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState, SessionType

KERNEL = KernelId("01a1fe3c-5331-77ad-8599-a7c43705bf99")
TRACED = f"00-{9:032x}-{7:016x}-01"


class Steps(SystemClock):
    """Only ``advance`` makes time pass."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def advance(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


def record(traceparent: str = TRACED, **fields: Any) -> KernelRecord:
    spec = KernelSpec(
        KERNEL, SessionId(SESSION), "job", SessionType.BATCH, "process", "custom", "job",
        traceparent=traceparent,
    )  # fmt: skip
    return KernelRecord(spec, Steps().at.timestamp(), **fields)


async def run(clock: Steps, seconds: float, error: Exception | None = None) -> None:
    clock.advance(seconds)
    if error is not None:
        raise error


def shown(kept: Kept) -> list[str]:
    zero = Steps().at.timestamp()
    return [f"{s.name} {s.start - zero:g}-{s.end - zero:g} {s.error}".rstrip() for s in kept.spans]


async def test_steps_until_it_is_ready() -> None:
    kept = Kept()
    clock = Steps()
    made = record()
    trace = start_trace(kept, made, clock)
    await trace.step("model", run(clock, 3))
    await trace.step("inputs", run(clock, 0))
    trace.note(ObservedState.CREATING, made)
    await trace.step("create", run(clock, 1))
    made = replace(made, handle=Handle("process"))
    trace.note(ObservedState.QUEUED, made)
    clock.advance(5)
    trace.note(ObservedState.CREATING, made)
    clock.advance(2)
    trace.note(ObservedState.RUNNING, made)
    assert shown(kept) == [
        "model 0-3", "create 3-4", "site queue 4-9", "readiness 9-11", "kernel start 0-11",
    ]  # fmt: skip
    root = kept.spans[-1]
    assert (root.context.trace_id, root.parent_id) == (9, 7)
    assert {one.parent_id for one in kept.spans[:-1]} == {root.context.span_id}
    assert program_traceparent(kept, made.spec) == root.context.traceparent
    ended = KernelOutcome(ObservedState.EXITED, 0, Reason.NONE, "")
    trace.note(ObservedState.EXITED, replace(made, outcome=ended))
    assert len(kept.spans) == 5, "the start has ended"


async def test_a_step_that_fails() -> None:
    kept = Kept()
    clock = Steps()
    made = record()
    trace = start_trace(kept, made, clock)
    with pytest.raises(OSError, match="disk"):
        await trace.step("image", run(clock, 2, OSError("disk")))

    outcome = KernelOutcome(ObservedState.EXITED, None, Reason.CREATE_FAILED, "no image")
    trace.note(ObservedState.EXITED, replace(made, outcome=outcome))
    assert shown(kept) == [
        "image 0-2 OSError('disk')", f"kernel start 0-2 {Reason.CREATE_FAILED}: no image",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sink", "made"),
    [
        (None, record()),
        (Kept(), record("")),
        (Kept(), record(TRACED[:-1] + "0")),
        (Kept(), record(ready=True)),
        (Kept(), record(outcome=KernelOutcome(ObservedState.GONE, None, Reason.KERNEL_GONE, ""))),
    ],
)
async def test_nothing_is_recorded(sink: Kept | None, made: KernelRecord) -> None:
    trace = start_trace(sink, made, Steps())
    assert await trace.step("model", asyncio.sleep(0.005, "found")) == "found"
    trace.note(ObservedState.RUNNING, made)
    assert sink is None or not sink.spans


def test_a_program_continues_the_session_where_its_agent_has_no_tracer() -> None:
    assert program_traceparent(None, record().spec) == TRACED
    assert program_traceparent(Kept(), record("").spec) == ""
