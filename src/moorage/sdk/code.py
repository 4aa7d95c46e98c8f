"""Calls about code in sessions, and sessions that run it: for asyncio, and without."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from moorage.common.model.code_runs import RunStatus
from moorage.common.views.executions import (
    CodeKernelView,
    CompletionSpec,
    CompletionView,
    ExecutionInput,
    ExecutionSpec,
    ExecutionView,
)
from moorage.common.views.resources import View
from moorage.sdk.transport import Transport, segment

if TYPE_CHECKING:
    pass

# What one call waits for the end of a run.
_WAIT_S = 10.0
Item = dict[str, Any]
OnItem = Callable[[Item], None]
OnInput = Callable[[str, bool], str]


class CodeKernels(View):
    items: list[CodeKernelView]


@dataclass(slots=True)
class Execution:
    """A run of code that has ended. ``items``: what it has printed, as ``ExecutionView.console``
    has it."""

    run_id: str
    status: RunStatus
    exit_code: int | None
    reason: str
    items: list[Item] = field(default_factory=list)

    @property
    def stdout(self) -> str:
        return "".join(
            i["text"] for i in self.items if i["type"] == "stream" and i["name"] == "stdout"
        )

    @property
    def stderr(self) -> str:
        return "".join(
            i["text"] for i in self.items if i["type"] == "stream" and i["name"] == "stderr"
        )

    @property
    def results(self) -> list[dict[str, Any]]:
        """Results and displays: each a dict of MIME type and data, binary data in base64."""
        return [item["data"] for item in self.items if item["type"] in ("result", "display")]

    @property
    def error(self) -> Item | None:
        """Name, message and traceback of the exception that ended it."""
        return next((item for item in self.items if item["type"] == "error"), None)


class CodeCalls(Transport):
    def session(self, ref: str) -> Session:
        """A running interactive session, by id or name, to run code in."""
        return Session(self, ref)

    async def start_execution(self, ref: str, spec: ExecutionSpec) -> ExecutionView:
        """Start a run; the answer is its first part. ``spec.run_id`` makes the call safe to
        repeat."""
        return await self.call(ExecutionView, "POST", f"{_path(ref)}/executions", body=spec)

    async def read_execution(
        self, ref: str, run_id: str, *, after: int = 0, wait_s: float = 0.0, kernel: str = "main1"
    ) -> ExecutionView:
        """``after``: ``next`` of the previous part. ``wait_s``: the longest wait, at most 30 s."""
        query = {"after": str(after), "wait_s": str(wait_s), "kernel": kernel}
        path = f"{_path(ref)}/executions/{segment(run_id)}"
        return await self.call(ExecutionView, "GET", path, query=query)

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
        path = f"{_path(ref)}/executions/{segment(run_id)}/input"
        return await self.call(ExecutionView, "POST", path, body=body)

    async def interrupt_execution(
        self, ref: str, run_id: str, *, kernel: str = "main1"
    ) -> ExecutionView:
        path = f"{_path(ref)}/executions/{segment(run_id)}/interrupt"
        return await self.call(ExecutionView, "POST", path, query={"kernel": kernel})

    async def complete_code(self, ref: str, spec: CompletionSpec) -> CompletionView:
        return await self.call(
            CompletionView, "POST", f"{_path(ref)}/executions/completions", body=spec
        )

    async def code_kernels(self, ref: str, *, kernel: str = "main1") -> list[CodeKernelView]:
        """The kernelspecs of the session."""
        path = f"{_path(ref)}/code-kernels"
        return (await self.call(CodeKernels, "GET", path, query={"kernel": kernel})).items

    async def restart_code_kernel(
        self, ref: str, language: str = "python", *, kernel: str = "main1"
    ) -> CodeKernelView:
        """What it has defined is lost; its run and those that wait end."""
        path = f"{_path(ref)}/code-kernels/{segment(language)}/restart"
        return await self.call(CodeKernelView, "POST", path, query={"kernel": kernel})


class Session:
    """``await client.session("dev").execute("1 + 1")``."""

    def __init__(self, client: CodeCalls, ref: str) -> None:
        self._client = client
        self.ref = ref

    async def execute(
        self,
        code: str = "",
        *,
        on_item: OnItem | None = None,
        on_input: OnInput | None = None,
        **options: Any,
    ) -> Execution:
        """Run code to its end. ``options``: further fields of ``ExecutionSpec``, such as
        ``language``.

        ``on_item`` is called with each item as it arrives; ``on_input`` with the prompt of a wish
        for input and whether it is for a password, and returns the answer. Without it the code
        cannot ask. A run that this call leaves, because it is cancelled or the manager does not
        answer, goes on.
        """
        given = {"code": code, "stdin": on_input is not None} | options
        spec = ExecutionSpec(**{"wait_s": _WAIT_S} | given)
        return await self.resume(
            await self._client.start_execution(self.ref, spec), on_item, on_input
        )

    async def resume(
        self, view: ExecutionView, on_item: OnItem | None = None, on_input: OnInput | None = None
    ) -> Execution:
        """The rest of a run, from a part of it on."""
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
                text = await asyncio.to_thread(on_input, wish["prompt"], wish["password"])
                view = await self._client.give_input(
                    self.ref, view.run_id, text, after=view.next, wait_s=_WAIT_S
                )
            else:
                view = await self._client.read_execution(
                    self.ref, view.run_id, after=view.next, wait_s=_WAIT_S
                )


def _path(ref: str) -> str:
    return f"/v1/sessions/{segment(ref)}"
