"""gRPC connection of the agent link: its options, the decoding of messages, and an explanation of
why it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized
from typing import TypeVar

import grpc
import structlog

from moorage.common.link import codec
from moorage.common.link.dial import Dialer
from moorage.common.link.pb import agent_pb2

A = TypeVar("A")
B = TypeVar("B")
log = structlog.get_logger("moorage.agent.link.client")

MAX_MESSAGE = 64 * 1024 * 1024
OPTIONS = [
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    # A manager that vanished silently is noticed after 5 + 4 s. The manager must allow such pings:
    # its grpc.http2.min_ping_interval_without_data_ms must be lower.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    (
        "grpc.http2.ping_timeout_ms",
        4_000,
    ),  # applies in addition to the option above; its default is a minute
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.bdp_probe", 0),  # as on the manager: a ping for each message
    ("grpc.http2.lookahead_bytes", 1024 * 1024),
    ("grpc.http2.max_pings_without_data", 0),
    # Each attempt gets its own connection, so that our backoff applies instead of a shared
    # connection's.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.enable_retries", 0),
]
# An agent that was replaced, or whose report is invalid, gains nothing by retrying early.
REFUSED_BACKOFF_S = 30.0
REFUSED = (grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.INVALID_ARGUMENT)
# Messages with more kernels are encoded and decoded in a thread.
_IN_A_THREAD = 500


async def if_many(kernels: Sized, work: Callable[[A], B], argument: A) -> B:
    """``work(argument)``, in a thread if there are so many kernels that they would block the event
    loop."""
    many = len(kernels) > _IN_A_THREAD
    return await asyncio.to_thread(work, argument) if many else work(argument)


async def decode(wire: agent_pb2.ManagerMessage) -> codec.ManagerMessage | None:
    try:
        return await if_many(wire.orders.kernels, codec.manager_message_from_wire, wire)
    except ValueError as error:
        log.error("ignoring an unknown message from the manager", error=str(error))
        return None


def explain(dialer: Dialer, error: grpc.aio.AioRpcError) -> str:
    code = error.code()
    details = error.details()
    if (explanation := dialer.explain(error)) is not None:
        return explanation
    if code in REFUSED:
        return f"it refuses this agent, which retries every {REFUSED_BACKOFF_S:.0f} s: {details}"
    if code is grpc.StatusCode.UNAVAILABLE:
        return f"nothing answers at {dialer.target}: {details}"
    return f"{code.name}: {details}"
