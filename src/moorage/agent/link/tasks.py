"""Call with which the agent exchanges tasks with a manager."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import structlog

from moorage.common.aio.tasks import raise_if_cancelled
from moorage.common.link.dial import BROKEN, Dialer
from moorage.common.link.pb import agent_pb2
from moorage.common.link.pb.agent_pb2_grpc import AgentLinkStub

log = structlog.get_logger("moorage.agent.tasks")
_ASK_S = 10.0


class TaskCalls:
    """The call. ``stub`` belongs to the current connection to a manager; None while there is no
    connection."""

    def __init__(self, dialer: Dialer, stub: Callable[[], AgentLinkStub | None]) -> None:
        self._dialer = dialer
        self._stub = stub

    async def exchange(self, request: agent_pb2.TaskExchange) -> agent_pb2.TaskAnswer | None:
        """The manager's answer; None if there was none. A manager without task lists knows no
        tasks."""
        stub = self._stub()
        if stub is None:
            return None

        try:
            answer: agent_pb2.TaskAnswer = await stub.ExchangeTasks(
                request, metadata=self._dialer.metadata, timeout=_ASK_S
            )
        except BROKEN as error:
            raise_if_cancelled()
            code = error.code() if isinstance(error, grpc.aio.AioRpcError) else None
            if code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED):
                log.warning("the manager refuses to exchange tasks", reason=str(error))
                return agent_pb2.TaskAnswer(known=False)
            return None

        return answer
