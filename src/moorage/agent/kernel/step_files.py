"""Inputs and outputs as steps in a kernel's life: inputs before it starts, outputs after it has
ended."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from moorage.agent.kernel.context import AgentContext
from moorage.agent.kernel.create import StartRefused
from moorage.agent.kernel.interruption import Interruption
from moorage.agent.kernel.outcome import KernelOutcome
from moorage.common.model.errors import MoorageError
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.reasons import Reason


async def fetch_inputs(
    context: AgentContext,
    spec: KernelSpec,
    on_progress: Callable[[str], None],
    interruption: Interruption,
) -> None:
    """Fetch the kernel's inputs to this node, unless interrupted. Like a model download, this
    precedes the recorded intent to start."""
    if not spec.inputs:
        return

    fetching = _failure(context.outputs.fetch(spec, on_progress))
    failed = await interruption.run(f"inputs.{spec.kernel_id}", fetching)
    if failed:
        raise StartRefused(Reason.INPUT_UNAVAILABLE, failed)


async def keep_outputs(
    context: AgentContext,
    spec: KernelSpec,
    outcome: KernelOutcome,
    interruption: Interruption,
) -> KernelOutcome:
    """The outcome of a kernel whose program has ended, which is a failure if an output cannot be
    kept."""
    if not spec.outputs or outcome.reason is not Reason.EXIT_ZERO:
        return outcome

    contained = context.is_contained(spec)
    work = context.workspaces.path(spec, contained) if contained else None
    keeping = _failure(context.outputs.keep(spec, work or context.work_dir(spec)))
    failed = await interruption.run(f"outputs.{spec.kernel_id}", keeping)

    return replace(outcome, reason=Reason.OUTPUT_FAILED, detail=failed) if failed else outcome


async def _failure(work: Coroutine[Any, Any, None]) -> str:
    """The reason for a failure; empty if there was none."""
    try:
        await work
    except (MoorageError, OSError) as error:
        return str(error) or repr(error)
    return ""
