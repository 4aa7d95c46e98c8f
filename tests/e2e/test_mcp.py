"""``moorage mcp`` on a running platform, used by the official Model Context Protocol client."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp

from .harness import Platform, until

SMALL = {"cpu": 0.1, "mem": "32MiB"}


@asynccontextmanager
async def connected(platform: Platform, *options: str) -> AsyncIterator[mcp.Client]:
    env = platform.env | {"MOORAGE_URL": platform.url, "MOORAGE_KEY": platform.key}
    server = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "moorage", "mcp", *options], env=env
    )
    async with mcp.Client(server) as client:
        yield client


async def call(client: mcp.Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content or result.content[0].text  # type: ignore[union-attr]


async def refusal(client: mcp.Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result
    return str(result.content[0].text)  # type: ignore[union-attr]


async def test_a_coding_agent_plans_and_applies(one_node: Platform) -> None:
    async with connected(one_node, "--gpu-hours", "1") as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {
            "list_sessions",
            "get_session_logs",
            "explain_session",
            "plan_create_session",
            "apply_plan",
        } <= names
        assert not {"create_session", "list_keys", "list_secrets"} & names

        body = {"name": "by-agent", "command": ["echo", "planned"], "resources": SMALL}
        planned = await call(client, "plan_create_session", body=body)
        assert planned["would_happen"]["fits"] is True
        assert planned["request"] == {"operation": "create_session", "body": body}
        assert (await call(client, "list_sessions", name="by-agent"))["items"] == []
        created = await call(client, "apply_plan", plan_id=planned["plan_id"])
        assert created["name"] == "by-agent"
        assert "it was applied" in await refusal(client, "apply_plan", plan_id=planned["plan_id"])

        async def logs() -> bool:
            return "planned" in await call(client, "get_session_logs", ref="by-agent")

        await until("it has run", logs)

        stop = await call(client, "plan_stop_session", ref=created["id"])
        assert stop["now"]["name"] == "by-agent"
        gpus = {"command": ["true"], "resources": SMALL | {"cuda.device": 2}}
        assert "set `timeout_s`" in await refusal(client, "plan_create_session", body=gpus)
        assert "1 of 1 are left" in await refusal(
            client, "plan_create_session", body=gpus | {"timeout_s": 3600}
        )
        assert "no end" in await refusal(
            client, "plan_create_endpoint", body={"name": "m", "engine": "vllm"}
        )
        assert "no tool" in await refusal(client, "create_session", body=body)
        assert "needs the argument" in await refusal(client, "get_session")
        assert "'nothing'" in await refusal(client, "get_session", ref="nothing")
        assert "command" in await refusal(client, "plan_create_session", body={"command": 5})
        assert "has no argument 'reff'" in await refusal(client, "get_session", reff="a")

    async with connected(one_node, "--read-only") as client:
        tools = (await client.list_tools()).tools
        assert not [
            tool.name
            for tool in tools
            if tool.name.startswith("plan_") or tool.name == "apply_plan"
        ]
        assert "no tool" in await refusal(client, "apply_plan", plan_id="x")
        assert json.dumps(await call(client, "get_overview"))
