"""Handlers for the scheduler's decisions and for past sessions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from moorage.common.model.spec import NoNul
from moorage.common.model.timestamps import Timestamp
from moorage.common.views.decisions import DecisionPage, RunView
from moorage.common.views.resources import Page
from moorage.manager.api.http.listing import PageQuery
from moorage.manager.api.http.route import Call, route


class TimeRangeQuery(PageQuery):
    group: NoNul = Field("default", description="A resource group.")
    from_: Annotated[Timestamp, Field(alias="from", description="Time in RFC 3339 with an offset.")]
    to: Timestamp

    @model_validator(mode="after")
    def _in_order(self) -> TimeRangeQuery:
        if self.from_ > self.to:
            raise ValueError(f"from = {self.from_.isoformat()} is after to = {self.to.isoformat()}")
        return self


@route(
    "GET",
    "/v1/scheduler/decisions",
    "List the scheduler's decisions in a time range, with their inputs",
    query=TimeRangeQuery,
    returns=DecisionPage,
    access="auditor",
)
async def list_scheduler_decisions(call: Call[None, TimeRangeQuery]) -> DecisionPage:
    query = call.query
    store = call.deps.store
    await store.groups.get(query.group)
    return await store.decisions.page(
        call.scope, query.group, query.from_, query.to, cursor=query.cursor, limit=query.limit
    )


@route(
    "GET",
    "/v1/scheduler/runs",
    "List the sessions that ran in a time range, with their allocations",
    query=TimeRangeQuery,
    returns=Page[RunView],
    access="auditor",
)
async def list_scheduler_runs(call: Call[None, TimeRangeQuery]) -> Page[RunView]:
    query = call.query
    store = call.deps.store
    await store.groups.get(query.group)
    return await store.decisions.runs(
        call.scope, query.group, query.from_, query.to, cursor=query.cursor, limit=query.limit
    )
