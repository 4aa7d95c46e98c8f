"""Handlers for questions about the scheduler's decisions."""

from __future__ import annotations

from fairlead.common.outlook import WhyView
from fairlead.manager.api import rights
from fairlead.manager.api.route import Call, NoQuery


async def get_why(call: Call[None, NoQuery]) -> WhyView:
    return await call.deps.store.why(await rights.seen_ref(call))
