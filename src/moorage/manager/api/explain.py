"""Handler that explains why a session is pending."""

from __future__ import annotations

from moorage.common.model.session_access import Action
from moorage.common.views.pending import WhyView
from moorage.manager.api.route import SESSION_PATH, Call, NoQuery, route


@route(
    "GET",
    f"{SESSION_PATH}/why",
    "Explain why a session is pending, and estimate when it can start",
    returns=WhyView,
    action=Action.SEE,
)
async def get_why(call: Call[None, NoQuery]) -> WhyView:
    return await call.deps.explanations.why(call.scope, call.path("ref"))
