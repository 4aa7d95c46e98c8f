"""Handler that explains why a session is pending."""

from __future__ import annotations

from moorage.common.views.pending import WhyView
from moorage.manager.api import authorization
from moorage.manager.api.route import Call, NoQuery


async def get_why(call: Call[None, NoQuery]) -> WhyView:
    return await call.deps.explanations.why(await authorization.readable_ref(call))
