"""Codec for the agents' messages. Messages with many kernels are encoded and decoded in a thread,
because they would otherwise block all others."""

from __future__ import annotations

import asyncio

from moorage.common.link import codec
from moorage.common.link.messages import Orders, OrdersDelta, Report, ReportDelta
from moorage.common.link.pb import agent_pb2
from moorage.manager.rpc.agent_stream import decode_report

IN_A_THREAD = 500


async def decode(wire: agent_pb2.Report) -> Report | ReportDelta:
    """Decode a message. Raises ``StreamRefused``."""
    many = len(wire.kernels) > IN_A_THREAD
    return await asyncio.to_thread(decode_report, wire) if many else decode_report(wire)


async def encode(orders: Orders | OrdersDelta) -> agent_pb2.ManagerMessage:
    if isinstance(orders, Orders) and len(orders.kernels) > IN_A_THREAD:
        return await asyncio.to_thread(codec.manager_message_to_wire, orders)
    return codec.manager_message_to_wire(orders)
