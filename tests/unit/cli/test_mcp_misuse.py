"""The MCP server and an agent that misuses it: plans that are replayed, changed or late, and the
budget."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from fake_manager import KEY, FakeManager
from mcp import types

from moorage.cli.mcp import skill
from moorage.cli.mcp.plans import EXPIRES_S, PlanBook
from moorage.cli.mcp.server import INSTRUCTIONS, MoorageTools
from moorage.cli.mcp.tools import operations
from moorage.common.aio.clock import SystemClock
from moorage.common.model.spec import SessionSpec
from moorage.manager.api.http.openapi import describe
from moorage.manager.api.routes import ROUTES
from moorage.sdk import Client

DOCUMENT = describe(ROUTES, "1")
ONE_HOUR = {"command": ["true"], "resources": {"cuda.device": 1}, "timeout_s": 3600}


class LateClock(SystemClock):
    """``late_s``: how much later the present is."""

    late_s = 0.0

    def monotonic(self) -> float:  # type: ignore[override]
        return SystemClock.monotonic() + self.late_s


@dataclass
class Agent:
    """A coding agent with its tools."""

    tools: MoorageTools
    book: PlanBook
    clock: LateClock

    async def call(self, tool: str, /, **arguments: Any) -> types.CallToolResult:
        return await self.tools.call(tool, arguments)

    async def plan(self, tool: str, **arguments: Any) -> str:
        made = await self.call(tool, **arguments)
        assert not made.is_error, made.content
        assert made.structured_content is not None
        return str(made.structured_content["plan_id"])

    async def refusal(self, tool: str, /, **arguments: Any) -> str:
        result = await self.call(tool, **arguments)
        assert result.is_error
        (text,) = result.content
        assert isinstance(text, types.TextContent)
        return text.text


@pytest.fixture
async def agent(manager: FakeManager) -> AsyncIterator[Agent]:
    clock = LateClock()
    book = PlanBook(budget=2)
    async with Client(manager.url, KEY) as client:
        yield Agent(MoorageTools(client, DOCUMENT, book, clock, read_only=False), book, clock)


def test_instructions_and_skill_name_tools_that_exist(agent: Agent) -> None:
    steps = skill.render(operations(DOCUMENT)).partition("|")[0]
    named = set(re.findall(r"\b(?:get|list|explain|apply|plan)_[a-z_]+\b", INSTRUCTIONS + steps))
    assert named - {"plan_id"} <= {tool.name for tool in agent.tools.tools()}
    assert {"explain_session", "get_session_logs"} <= named


def test_tools_with_their_schemas_are_short(agent: Agent) -> None:
    """Agents read all of them first: at 3.5 bytes per token, less than 8,000 tokens."""
    tools = agent.tools.tools()
    sizes = [len(one.model_dump_json(by_alias=True, exclude_none=True)) for one in tools]
    assert sum(sizes) < 8_000 * 3.5
    assert max(sizes) < 3_000


async def test_the_complete_schema_of_a_tool_is_available(agent: Agent) -> None:
    listed = {tool.name: tool.input_schema for tool in agent.tools.tools()}
    answer = await agent.call("get_schema", tool="plan_create_session")
    assert answer.structured_content is not None
    full = answer.structured_content["$defs"]["SessionSpec"]["properties"]
    short = listed["plan_create_session"]["properties"]["body"]["properties"]
    assert full.keys() == short.keys() | {"notify"}  # which is for people
    assert "description" in full["timeout_s"]
    assert short["timeout_s"]["type"] == "number"
    assert "no schema of 'x'" in await agent.refusal("get_schema", tool="x")
    assert "no schema of ''" in await agent.refusal("get_schema")


def created(manager: FakeManager) -> int:
    return sum(request == "POST /v1/sessions" for request in manager.requests)


async def test_a_plan_is_not_replayed_also_at_the_same_moment(
    manager: FakeManager, agent: Agent
) -> None:
    plan_id = await agent.plan("plan_create_session", body=ONE_HOUR)
    results = await asyncio.gather(*(agent.call("apply_plan", plan_id=plan_id) for _ in range(8)))
    assert [one.is_error for one in results].count(False) == 1
    assert created(manager) == 1


async def test_the_budget_holds_for_plans_that_are_applied_at_once(
    manager: FakeManager, agent: Agent
) -> None:
    plans = [await agent.plan("plan_create_session", body=ONE_HOUR) for _ in range(8)]
    results = await asyncio.gather(*(agent.call("apply_plan", plan_id=one) for one in plans))
    assert [one.is_error for one in results].count(False) == 2
    assert (created(manager), agent.book.used) == (2, 2)
    assert "0 of 2 are left" in await agent.refusal("plan_create_session", body=ONE_HOUR)


async def test_arguments_do_not_change_after_the_plan(manager: FakeManager, agent: Agent) -> None:
    body = dict(ONE_HOUR, name="shown")
    plan_id = await agent.plan("plan_create_session", body=body)
    refused = await agent.refusal("apply_plan", plan_id=plan_id, body=dict(body, timeout_s=1e6))
    assert "no argument 'body'" in refused
    assert created(manager) == 0
    assert not (await agent.call("apply_plan", plan_id=plan_id)).is_error


async def test_a_plan_is_about_the_session_that_had_the_name(
    manager: FakeManager, agent: Agent
) -> None:
    first = manager.add_session(SessionSpec(name="train", command=["true"]))
    plan_id = await agent.plan("plan_stop_session", ref="train")
    manager.sessions.remove(first)
    second = manager.add_session(SessionSpec(name="train", command=["true"]))
    assert first.id in await agent.refusal("apply_plan", plan_id=plan_id)
    assert not any("DELETE" in one or "stop" in one for one in manager.requests if second.id in one)
    assert second.status not in ("TERMINATING", "CANCELLED", "TERMINATED")


async def test_late_and_unknown_plans_and_writes_without_one(
    manager: FakeManager, agent: Agent
) -> None:
    plan_id = await agent.plan("plan_create_session", body=ONE_HOUR)
    agent.clock.late_s = EXPIRES_S + 1
    other = PlanBook()  # of another user's server
    async with Client(manager.url, KEY) as client:
        stranger = Agent(
            MoorageTools(client, DOCUMENT, other, agent.clock, read_only=False), other, agent.clock
        )
        foreign = await stranger.plan("plan_create_session", body=ONE_HOUR)

    for one in (plan_id, foreign, "", "x", None):
        assert "there is no plan" in await agent.refusal("apply_plan", plan_id=one)

    for tool in (
        "create_session",
        "plan_plan_create_session",
        "delete_session",
        "plan_get_session",
    ):
        assert "there is no tool" in await agent.refusal(tool, body=ONE_HOUR, ref="x")

    assert created(manager) == 0


@pytest.mark.parametrize(("status", "used"), [(400, 0), (409, 0), (500, 1), (503, 1), (504, 1)])
async def test_what_may_have_happened_counts(
    manager: FakeManager, agent: Agent, status: int, used: float
) -> None:
    plan_id = await agent.plan("plan_create_session", body=ONE_HOUR)
    manager.can("POST", "/v1/sessions", status, "a gateway's page")
    assert (await agent.call("apply_plan", plan_id=plan_id)).is_error
    assert agent.book.used == used


@pytest.mark.parametrize("value", ["", ".", ".."])
async def test_no_parameter_leads_to_another_path(
    manager: FakeManager, agent: Agent, value: str
) -> None:
    for tool, name in (
        ("get_session", "ref"),
        ("plan_stop_session", "ref"),
        ("get_endpoint", "name"),
    ):
        assert "names nothing" in await agent.refusal(tool, **{name: value})
    assert manager.requests == []


async def test_lists_are_arguments(manager: FakeManager, agent: Agent) -> None:
    manager.add_session(SessionSpec(name="train", command=["true"]))
    found = await agent.call("list_sessions", status=["PENDING", "RUNNING"])
    assert not found.is_error, found.content
    assert any(re.search(r"status=PENDING(,|%2C)RUNNING", one) for one in manager.requests)


async def test_tools_that_are_not_offered_do_not_exist(agent: Agent, manager: FakeManager) -> None:
    async with Client(manager.url, KEY) as client:
        clock = agent.clock
        tools = MoorageTools(
            client, DOCUMENT, agent.book, clock, read_only=False, only=["get_session"]
        )
        few = Agent(tools, agent.book, clock)
        assert [tool.name for tool in tools.tools()] == ["get_session", "get_schema"]
        assert "there is no tool" in await few.refusal("list_sessions")
        assert "there is no tool" in await few.refusal("apply_plan", plan_id="x")
        assert "has no schema" in await few.refusal("get_schema", tool="list_sessions")
        refused = await few.refusal("get_session", ref="nothing")
        assert "(a command that the user can run)" in refused

    assert "`list_sessions`" in await agent.refusal("get_session", ref="nothing")
