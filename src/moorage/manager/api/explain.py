"""Handler that explains why a session is pending."""

from __future__ import annotations

from moorage.common.views.pending import WhyView
from moorage.manager.api.route import Call, NoQuery


async def get_why(call: Call[None, NoQuery]) -> WhyView:
    return await call.deps.explanations.why(call.scope, call.path("ref"))
