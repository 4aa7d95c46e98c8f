"""A task list as a step in a kernel's life: after the kernel has ended, the manager learns how its
tasks ended, before it learns that the kernel has."""

from __future__ import annotations

from dataclasses import replace

from moorage.agent.kernel.context import AgentContext
from moorage.agent.kernel.outcome import KernelOutcome
from moorage.agent.tasks import ListResult
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.reasons import Reason


async def settle(context: AgentContext, spec: KernelSpec, outcome: KernelOutcome) -> KernelOutcome:
    """The outcome of a kernel whose program has ended. Waits until a manager has the ends of its
    tasks."""
    folder = context.progress_folder(spec) if spec.tasks is not None else None
    if folder is None:
        return outcome
    return judge(outcome, await context.tasks.settle(spec, folder))


def judge(outcome: KernelOutcome, result: ListResult | None) -> KernelOutcome:
    """The outcome, which is a success only if all tasks succeeded. Pure. ``result``: None if the
    manager does not know the list."""
    if outcome.reason is Reason.EXIT_ZERO and (result is None or not result.success):
        why = "its list is unknown to the manager" if result is None else str(result)
        return replace(outcome, reason=Reason.TASKS_FAILED, detail=why)
    if outcome.reason is Reason.EXIT_NONZERO and result is not None and result.finished:
        return replace(outcome, reason=Reason.TASKS_FAILED, detail=str(result))
    return outcome
