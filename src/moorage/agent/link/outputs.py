"""Calls about step outputs: fetching an output from the agent that has it, and asking which outputs
are still needed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import grpc

from moorage.common.aio.tasks import raise_if_cancelled
from moorage.common.link.dial import BROKEN, Dialer
from moorage.common.link.pb import agent_pb2
from moorage.common.link.pb.agent_pb2_grpc import AgentLinkStub
from moorage.common.model.errors import NotFound
from moorage.common.model.ids import AgentId, KernelId, SessionId

_ASK_S = 10.0


class OutputLink:
    """The calls. ``stub`` belongs to the current connection to a manager; None while there is no
    connection."""

    def __init__(
        self, agent_id: AgentId, dialer: Dialer, stub: Callable[[], AgentLinkStub | None]
    ) -> None:
        self._agent_id = agent_id
        self._dialer = dialer
        self._stub = stub

    async def fetch(
        self, kernel_id: KernelId, session_id: SessionId, output: str
    ) -> AsyncGenerator[bytes, None]:
        """Yield the output as the other agent sends it. It is complete when the iteration ends.
        Raises ``NotFound`` if it does not exist, and ``OSError`` if it may become available
        later."""
        stub = self._stub()
        if stub is None:
            raise ConnectionError("there is no connection to a manager")

        request = agent_pb2.OutputRequest(
            agent_id=self._agent_id, kernel_id=kernel_id, session_id=session_id, output=output
        )
        call: Any = stub.FetchOutput(request, metadata=self._dialer.metadata)
        try:
            async for chunk in call:
                if chunk.error:
                    raise NotFound(chunk.error)

                yield chunk.data
                if chunk.end:
                    return

            raise ConnectionError("the node that has it was lost during the transfer")
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                raise NotFound(error.details()) from None
            raise ConnectionError(error.details() or str(error.code())) from None
        finally:
            call.cancel()

    async def needed(self, sessions: Sequence[SessionId]) -> frozenset[SessionId] | None:
        """The sessions among ``sessions`` whose outputs may still be needed; None if there was no
        answer."""
        stub = self._stub()
        if stub is None:
            return None

        request = agent_pb2.KeptOutputs(agent_id=self._agent_id, session_ids=sessions)
        try:
            answer = await stub.NeededOutputs(
                request, metadata=self._dialer.metadata, timeout=_ASK_S
            )
        except BROKEN:
            raise_if_cancelled()
            return None

        return frozenset(SessionId(session_id) for session_id in answer.session_ids)
