"""Answers to the manager's requests for logs and workspaces, each in a separate call alongside the
agent's stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from moorage.agent.execution.workspaces import HandleWorkspaceRequest
from moorage.agent.state.logs import OutputLost
from moorage.common.link.dial import BROKEN
from moorage.common.link.messages import LogPiece, LogRequest, WorkspaceRequest
from moorage.common.link.pb import agent_pb2
from moorage.common.link.pb.agent_pb2_grpc import AgentLinkStub
from moorage.common.model.errors import MoorageError

CALL_TIMEOUT_S = 4.0
_CHUNK = 65_536
_LOG_TIMEOUT_S = 300.0  # for a log that is not followed


async def send_workspaces(
    stub: AgentLinkStub, metadata: Any, request: WorkspaceRequest, handle: HandleWorkspaceRequest
) -> None:
    answer = await handle(request)
    try:
        await stub.SendWorkspaces(answer, metadata=metadata, timeout=CALL_TIMEOUT_S)
    except BROKEN:
        pass  # the manager's request has timed out


async def send_log(
    stub: AgentLinkStub,
    metadata: Any,
    request: LogRequest,
    open_log: Callable[[LogRequest], AsyncGenerator[bytes | LogPiece, None]],
) -> None:
    call = stub.SendLogs(metadata=metadata, timeout=None if request.follow else _LOG_TIMEOUT_S)
    current = asyncio.current_task()
    assert current is not None

    # The manager ends the call when its reader has disconnected. This must be noticed even if the
    # kernel writes nothing for a long time.
    call.add_done_callback(lambda _: current.cancel())

    def chunk(data: bytes = b"", **fields: Any) -> agent_pb2.LogChunk:
        return agent_pb2.LogChunk(request_id=request.request_id, data=data, **fields)

    try:
        # Identifies the request, even if the log stays empty for a long time. If it cannot be
        # opened, the error is sent next.
        await call.write(chunk(marks_end=True, timed=request.is_timed))
        try:
            async with aclosing(open_log(request)) as pieces:
                is_told = False  # or the first byte's number is unknown
                async for given in pieces:
                    piece = given if isinstance(given, LogPiece) else LogPiece(given)
                    if not is_told and piece.offset is not None:
                        # This is a separate message, because nothing may be logged for a long time.
                        await call.write(chunk(offset=piece.offset))

                    is_told = is_told or piece.offset is not None or bool(piece.data)
                    for start in range(0, len(piece.data), _CHUNK):
                        await call.write(chunk(piece.data[start : start + _CHUNK]))
        except OutputLost:
            # End without an end mark, so that the reader looks for the place and reports the loss.
            # The call is ended in an orderly way, because a cancelled call would lose the data
            # before the gap.
            pass
        except (MoorageError, OSError) as error:
            await call.write(chunk(error=str(error)))
            await call.write(chunk(end=True))
        else:
            await call.write(chunk(end=True))

        await call.done_writing()
        await call
    except BROKEN:
        pass
    finally:
        call.cancel()
