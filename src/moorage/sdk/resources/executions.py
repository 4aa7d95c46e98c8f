"""Runs of code in interactive sessions."""

from __future__ import annotations

import asyncio
from typing import Any

from moorage.common.model.code_runs import END_OF_INPUT, RunStatus
from moorage.common.views.executions import (
    CompletionSpec,
    CompletionView,
    ExecutionInput,
    ExecutionSpec,
    ExecutionView,
)
from moorage.sdk.code import Execution, Item, OnInput, OnItem
from moorage.sdk.resource import Resource, SyncResource, blocking
from moorage.sdk.transport import segment

# How long one call waits for a run to end.
_WAIT_S = 10.0


class Executions(Resource):
    """Runs of code in interactive sessions."""

    async def run(
        self,
        /,
        ref: str,
        code: str = "",
        *,
        on_item: OnItem | None = None,
        on_input: OnInput | None = None,
        **options: Any,
    ) -> Execution:
        """Run code to completion in a running interactive session, given by id or name.
        ``options``: additional fields of ``ExecutionSpec``, such as ``language``.

        ``on_item`` is called with each item as it arrives. ``on_input`` is called with the prompt
        of an input request and whether it is for a password, and returns the answer. If it raises
        ``EOFError``, the code's ``input()`` raises it, too. Without ``on_input``, the code cannot
        ask for input. If this call is cancelled or the manager does
        not answer, the run continues.
        """
        given = {"code": code, "stdin": on_input is not None} | options
        spec = ExecutionSpec(**{"wait_s": _WAIT_S} | given)
        return await self.resume(
            ref,
            await self.start(ref, spec),
            on_item=on_item,
            on_input=on_input,
            kernel=spec.kernel,
        )

    async def resume(
        self,
        ref: str,
        view: ExecutionView,
        *,
        on_item: OnItem | None = None,
        on_input: OnInput | None = None,
        kernel: str = "main1",
    ) -> Execution:
        """The rest of a run, starting from one of its parts. ``kernel``: the kernel of the cluster
        in which it runs, like sub1."""
        items: list[Item] = []
        while True:
            items += view.console
            if on_item is not None:
                for item in view.console:
                    on_item(item)

            if view.ended:
                return Execution(
                    view.run_id,
                    view.status,
                    exit_code=view.exit_code,
                    reason=view.reason,
                    items=items,
                )

            if view.status is RunStatus.WAITING_INPUT and on_input is not None:
                wish = next(item for item in reversed(items) if item["type"] == "input")
                try:
                    text = await asyncio.to_thread(on_input, wish["prompt"], wish["password"])
                except EOFError:
                    text = END_OF_INPUT
                view = await self.give_input(
                    ref, view.run_id, text, after=view.next, wait_s=_WAIT_S, kernel=kernel
                )
            else:
                view = await self.read(
                    ref, view.run_id, after=view.next, wait_s=_WAIT_S, kernel=kernel
                )

    async def start(self, ref: str, spec: ExecutionSpec) -> ExecutionView:
        """Start a run; the answer is its first part. ``spec.run_id`` makes the call safe to
        repeat."""
        return await self._call(
            ExecutionView, "POST", f"/v1/sessions/{segment(ref)}/executions", body=spec
        )

    async def read(
        self, ref: str, run_id: str, *, after: int = 0, wait_s: float = 0.0, kernel: str = "main1"
    ) -> ExecutionView:
        """``after``: the previous part's ``next``. ``wait_s``: the longest wait, at most 30 s."""
        query = {"after": str(after), "wait_s": str(wait_s), "kernel": kernel}
        path = f"/v1/sessions/{segment(ref)}/executions/{segment(run_id)}"
        return await self._call(ExecutionView, "GET", path, query=query)

    async def give_input(
        self,
        ref: str,
        run_id: str,
        text: str,
        *,
        after: int = 0,
        wait_s: float = 2.0,
        kernel: str = "main1",
    ) -> ExecutionView:
        body = ExecutionInput(text=text, after=after, wait_s=wait_s, kernel=kernel)
        path = f"/v1/sessions/{segment(ref)}/executions/{segment(run_id)}/input"
        return await self._call(ExecutionView, "POST", path, body=body)

    async def interrupt(self, ref: str, run_id: str, *, kernel: str = "main1") -> ExecutionView:
        path = f"/v1/sessions/{segment(ref)}/executions/{segment(run_id)}/interrupt"
        return await self._call(ExecutionView, "POST", path, query={"kernel": kernel})

    async def complete(self, ref: str, spec: CompletionSpec) -> CompletionView:
        return await self._call(
            CompletionView, "POST", f"/v1/sessions/{segment(ref)}/executions/completions", body=spec
        )


class SyncExecutions(SyncResource[Executions]):
    """``Executions`` without asyncio."""

    run = blocking(Executions.run)
    resume = blocking(Executions.resume)
    start = blocking(Executions.start)
    read = blocking(Executions.read)
    give_input = blocking(Executions.give_input)
    interrupt = blocking(Executions.interrupt)
    complete = blocking(Executions.complete)
