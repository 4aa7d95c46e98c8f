"""Broker for step outputs: relays an output from the agent that has it to the agent that needs it,
and tells agents which outputs they can delete.

An agent gets an output only as an input of a kernel that it should currently run.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import grpc

from moorage.common.link.pb import agent_pb2
from moorage.common.model.errors import AgentUnreachable, StoreUnavailable
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.manager.rpc.authentication import LinkCaller
from moorage.manager.rpc.logs import LogBroker
from moorage.manager.store import Store

_ASKED_AT_ONCE = 10_000


class OutputBroker:
    """``kept_s``: how long an output is kept for a retry."""

    def __init__(self, store: Store, logs: LogBroker, kept_s: float) -> None:
        self._store = store
        self._logs = logs
        self._kept_s = kept_s

    async def fetch(
        self, request: agent_pb2.OutputRequest, context: Any, caller: LinkCaller
    ) -> None:
        """Serve one call of ``FetchOutput``. UNAVAILABLE means that a later call may succeed."""
        if wrong := caller.refusal_to_act_as(request.agent_id):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, wrong)
        if "\0" in request.agent_id + request.output:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a name contains a NUL character")

        session_id = SessionId(request.session_id)
        try:
            source = await self._store.outputs.source(
                AgentId(request.agent_id), KernelId(request.kernel_id), session_id, request.output
            )
            if source is None:
                await context.abort(
                    grpc.StatusCode.NOT_FOUND,
                    f"output {request.output!r} of session {session_id} is not an input of that "
                    "kernel",
                )
                raise AssertionError("aborted")

            async with aclosing(
                self._logs.read_output(source, session_id, request.output)
            ) as chunks:
                async for chunk in chunks:
                    await context.write(chunk)
        except (AgentUnreachable, StoreUnavailable) as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, error.message)

    async def needed(
        self, request: agent_pb2.KeptOutputs, context: Any, caller: LinkCaller
    ) -> agent_pb2.KeptOutputs:
        """Serve one call of ``NeededOutputs``."""
        if wrong := caller.refusal_to_act_as(request.agent_id):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, wrong)

        sessions = [SessionId(session_id) for session_id in request.session_ids[:_ASKED_AT_ONCE]]
        try:
            found = await self._store.outputs.needed(sessions, self._kept_s)
        except StoreUnavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, error.message)
            raise AssertionError("aborted") from error

        return agent_pb2.KeptOutputs(agent_id=request.agent_id, session_ids=found)
