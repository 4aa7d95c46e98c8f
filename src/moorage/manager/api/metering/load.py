"""Handlers for load over time: of endpoints, and of nodes with their devices."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import Field

from moorage.common.model.errors import InvalidInput
from moorage.common.model.timestamps import Timestamp
from moorage.common.views.load import AgentLoad, EndpointLoad, LoadStep
from moorage.manager.api.http.route import Call, NoQuery, route
from moorage.manager.api.platform.agents import visible_agent
from moorage.manager.store.endpoints.load_history import LoadWindow

# Steps: the seconds of the spans that they are made of, their own seconds, and the number of days
# for which these spans are kept. Then the largest and the default number of steps in a response.
STEPS: dict[LoadStep, tuple[int, int, float]] = {
    "minute": (60, 60, 2),
    "5-minutes": (60, 300, 2),
    "hour": (3600, 3600, 90),
    "day": (86_400, 86_400, 3650),
}
MOST_STEPS = 3000
USUAL_STEPS = 750
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_KEPT = (
    "Samples are taken every 30 seconds. Minutes are kept for two days, hours for ninety days and "
    "days for ten years."
)


class LoadQuery(NoQuery):
    from_: Annotated[
        Timestamp | None,
        Field(
            alias="from",
            description=(
                "The first step is the one that contains this time. Default: one hour before `to`."
            ),
        ),
    ] = None
    to: Timestamp | None = Field(
        None, description="The last step begins before this time. Default: now."
    )
    step: LoadStep | None = Field(
        None,
        description=f"Default: the shortest with at most {USUAL_STEPS} steps that are still kept.",
    )


@route(
    "GET",
    "/v1/endpoints/{name:.+}/load",
    (
        "Get the load of an endpoint over time: requests, errors, tokens, time to first token, "
        f"queue and replicas. {_KEPT}"
    ),
    query=LoadQuery,
    returns=EndpointLoad,
    access="viewer",
)
async def get_endpoint_load(call: Call[None, LoadQuery]) -> EndpointLoad:
    window = window_of(call.query, call.deps.clock.now())
    return await call.deps.store.load_history.of_endpoint(call.scope, call.path("name"), window)


@route(
    "GET",
    "/v1/agents/{id}/load",
    (
        "Get the load of a node over time: CPU and memory, and the utilization, memory, "
        f"temperature and power of its devices. {_KEPT}"
    ),
    query=LoadQuery,
    returns=AgentLoad,
    access="viewer",
)
async def get_agent_load(call: Call[None, LoadQuery]) -> AgentLoad:
    window = window_of(call.query, call.deps.clock.now())
    view = await visible_agent(call)
    return await call.deps.store.load_history.of_agent(view.id, window)


def window_of(query: LoadQuery, now: datetime) -> LoadWindow:
    """The steps that a query asks for. Raises ``InvalidInput``. Pure."""
    until = query.to or now
    since = query.from_ or until - _HOUR
    step = query.step or choose_step(since, until, now)
    span_s, step_s, _ = STEPS[step]
    if not 0 < (until - since).total_seconds() <= MOST_STEPS * step_s:
        raise InvalidInput(
            f"from {since.isoformat()} to {until.isoformat()} are not 1 to {MOST_STEPS} steps of "
            f"{step_s} seconds",
            field="from",
            where="query",
            next_step="give a `from` before `to`, or a longer `step`",
        )

    first = datetime.fromtimestamp(since.timestamp() // step_s * step_s, UTC)
    return LoadWindow(step, span_s, step_s, since=first, until=until)


def choose_step(since: datetime, until: datetime, now: datetime) -> LoadStep:
    """The shortest step that is still kept for ``since`` and yields at most ``USUAL_STEPS`` steps;
    or a day if there is none. Pure."""
    for step, (_, step_s, days) in STEPS.items():
        few = (until - since).total_seconds() <= USUAL_STEPS * step_s
        if few and now - since <= days * _DAY:
            return step
    return "day"
