"""Server of the Model Context Protocol, built on the official SDK: lists tools and calls the
manager."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from typing import Any

import aiohttp
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from yarl import URL

import moorage
from moorage.cli.mcp.next_steps import answer_for_agent, for_agent
from moorage.cli.mcp.plans import EXPIRES_S, OperationPlan, PlanBook
from moorage.cli.mcp.tools import PLAN, Operation, chosen, operations
from moorage.common.aio.clock import Clock
from moorage.common.model.errors import InvalidInput, MoorageError, NotFound
from moorage.sdk import Client
from moorage.sdk.errors import ApiError
from moorage.sdk.problems import problem_of

APPLY = "apply_plan"
SCHEMA = "get_schema"
# Longer answers fill the context of an agent.
MAX_TEXT = 60_000
INSTRUCTIONS = """Moorage runs sessions (jobs, notebooks) and model endpoints on GPUs.

Read tools answer immediately. To change something, call a plan_… tool with the complete
request. It changes nothing, and returns what would happen with a plan_id. Show that to the user,
then call apply_plan with the plan_id. A plan can be used once, within ten minutes. get_schema
describes every field of a tool's arguments. In lists, cursor is the `next` of the previous page,
and a leading - in sort sorts in descending order. explain_session explains why a session waits;
get_session_logs returns its output."""


class MoorageTools:
    """The tools of one manager. ``read_only``: there are no tools that write. ``only``: names and
    groups of the tools that there are; empty means all. Raises ``InvalidInput``."""

    def __init__(
        self,
        client: Client,
        document: Mapping[str, Any],
        book: PlanBook,
        clock: Clock,
        *,
        read_only: bool,
        only: Collection[str] = (),
    ) -> None:
        self._client = client
        self._book = book
        self._clock = clock
        found = operations(document).values()
        offered = {
            operation.name: operation for operation in found if not (read_only and operation.writes)
        }
        self._operations = chosen(offered, only) if only else offered
        self._names = frozenset(operation.tool for operation in self._operations.values())
        self._writes = any(operation.writes for operation in self._operations.values())

    def tools(self) -> list[types.Tool]:
        listed = [_tool(operation) for operation in self._operations.values()]
        return [*listed, _SCHEMA_TOOL, *([_APPLY_TOOL] if self._writes else [])]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
        """Call a tool. Errors are returned as results, which the agent reads."""
        try:
            return _result(answer_for_agent(await self._call(name, arguments), self._names))
        except MoorageError as error:
            step = f"\nNext step: {error.next_step}" if error.next_step else ""
            return _text(for_agent(f"{error.message}{step}", self._names), is_error=True)

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        if name == APPLY and self._writes:
            if unknown := sorted(arguments.keys() - {"plan_id"}):
                raise InvalidInput(
                    f"{APPLY} has no argument {unknown[0]!r}: a plan is applied unchanged",
                    next_step="plan again with other arguments",
                )

            return await self._apply(str(arguments.get("plan_id", "")))

        if name == SCHEMA:
            return self._schema(arguments)

        operation = self._operations.get(name.removeprefix(PLAN))
        if operation is None or operation.writes != name.startswith(PLAN):
            raise NotFound(f"there is no tool {name!r}", next_step="list the tools again")

        allowed = {*operation.parameters, *(("body",) if operation.body is not None else ())}
        if unknown := sorted(arguments.keys() - allowed):
            raise InvalidInput(
                f"{name} has no argument {unknown[0]!r}", next_step=f"allowed: {sorted(allowed)}"
            )

        if operation.writes:
            return await self._plan(operation, dict(arguments))

        return (await self._request("GET", operation, arguments))[0]

    def _schema(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The complete schema of a tool's arguments."""
        name = str(arguments.get("tool", ""))
        operation = self._operations.get(name.removeprefix(PLAN))
        if operation is None or arguments.keys() != {"tool"}:
            raise InvalidInput(
                f"{SCHEMA} has no schema of {name!r}: `tool` is the name of a tool",
                next_step="list the tools again",
            )

        return operation.input_schema()

    async def _plan(self, operation: Operation, arguments: dict[str, Any]) -> dict[str, Any]:
        hours = self._book.check(operation.name, arguments)
        etag = None
        effect = None
        if operation.plan_path is not None:
            effect, _ = await self._request("POST", operation, arguments, path=operation.plan_path)
        elif operation.about is not None:
            effect, etag = await self._request("GET", operation, arguments, path=operation.about)
            arguments = operation.pinned(arguments, effect)
        else:
            operation.target(arguments)

        now = self._clock.monotonic()
        plan = OperationPlan(
            self._clock.new_id(),
            operation.name,
            arguments=arguments,
            expires_at=now + EXPIRES_S,
            etag=etag,
            gpu_hours=hours,
        )
        self._book.add(plan, now)
        budget = self._book.budget

        return {
            "plan_id": plan.id,
            "expires_in_s": EXPIRES_S,
            "request": {"operation": operation.name, **arguments},
            ("now" if operation.plan_path is None else "would_happen"): effect,
            **(
                {}
                if budget is None
                else {"gpu_hours": hours, "gpu_hours_left": budget - self._book.used - hours}
            ),
        }

    async def _apply(self, plan_id: str) -> Any:
        plan = self._book.take(plan_id, self._clock.monotonic())
        operation = self._operations[plan.operation]
        headers = {"If-Match": plan.etag} if operation.versioned and plan.etag else {}
        if operation.idempotent:
            headers["Idempotency-Key"] = plan.id

        try:
            answer, _ = await self._request(
                operation.method.upper(), operation, plan.arguments, headers=headers
            )
        except ApiError as error:
            if error.status < 500:  # otherwise, the write may have taken effect
                self._book.give_back(plan)
            raise

        return answer

    async def _request(
        self,
        method: str,
        operation: Operation,
        arguments: Mapping[str, Any],
        *,
        path: str | None = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[Any, str | None]:
        """Return the answer and its ETag. ``path``: the path of another resource with the same
        parameters."""
        try:
            target, given = operation.target(arguments, path)
        except KeyError as error:
            raise InvalidInput(f"{operation.name} needs the argument {error}") from None

        given = {} if path is not None else given | dict(query or {})
        sends = method != "GET" and operation.body is not None
        body = json.dumps(arguments.get("body", {})).encode() if sends else None
        kind = {"Content-Type": "application/json"} if sends else {}
        client = self._client
        try:
            async with asyncio.timeout(client.timeout):
                async with client.http.request(
                    method,
                    URL(client.address(target, given), encoded=True),
                    data=body,
                    headers={**kind, **(headers or {})},
                ) as answer:
                    raw = await answer.read()
        except (aiohttp.ClientError, OSError) as error:
            raise client.unreachable(error) from error

        if answer.status >= 300:
            raise ApiError(answer.status, problem_of(client.url, answer.status, raw))

        is_json = answer.content_type == "application/json"
        return (json.loads(raw) if is_json else raw.decode(errors="replace")), answer.headers.get(
            "ETag"
        )


def _tool(operation: Operation) -> types.Tool:
    if not operation.writes:
        return types.Tool(
            name=operation.name,
            description=operation.summary.partition(". ")[0].rstrip(".") + ".",
            input_schema=operation.short_schema(),
            annotations=types.ToolAnnotations(read_only_hint=True),
        )

    return types.Tool(
        name=operation.tool,
        description=(f"Plan: {operation.summary}"),
        input_schema=operation.short_schema(),
        annotations=types.ToolAnnotations(read_only_hint=True),
    )


_SCHEMA_TOOL = types.Tool(
    name=SCHEMA,
    description="Describe every field of a tool's arguments, such as those of plan_create_session.",
    input_schema={
        "type": "object",
        "properties": {"tool": {"type": "string", "description": "Name of a tool."}},
        "required": ["tool"],
        "additionalProperties": False,
    },
    annotations=types.ToolAnnotations(read_only_hint=True),
)

_APPLY_TOOL = types.Tool(
    name=APPLY,
    description="Apply a plan, once. The user should have seen the plan.",
    input_schema={
        "type": "object",
        "properties": {
            "plan_id": {"type": "string", "description": "The id returned by a plan_… tool."}
        },
        "required": ["plan_id"],
        "additionalProperties": False,
    },
    annotations=types.ToolAnnotations(read_only_hint=False, destructive_hint=True),
)


def _result(answer: Any) -> types.CallToolResult:
    if isinstance(answer, str):
        return _text(answer)
    result = _text(json.dumps(answer, ensure_ascii=False))
    return (
        result.model_copy(update={"structured_content": answer})
        if isinstance(answer, dict)
        else result
    )


def _text(text: str, *, is_error: bool = False) -> types.CallToolResult:
    if len(text) > MAX_TEXT:
        text = (
            f"{text[:MAX_TEXT]}\n… {len(text) - MAX_TEXT} more characters: request less, see the "
            "arguments"
        )
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], is_error=is_error
    )


def make_server(tools: MoorageTools) -> Server[Any]:
    async def list_tools(_: Any, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools.tools())

    async def call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return await tools.call(params.name, params.arguments or {})

    return Server(
        "moorage",
        version=moorage.__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def fetch_document(client: Client) -> dict[str, Any]:
    """The manager's OpenAPI document. Raises ``Unreachable`` and ``ApiError``."""
    try:
        async with (
            asyncio.timeout(client.timeout),
            client.http.get(client.address("/openapi.json", {})) as answer,
        ):
            raw = await answer.read()
    except (aiohttp.ClientError, OSError) as error:
        raise client.unreachable(error) from error

    if answer.status != 200:
        raise ApiError(answer.status, problem_of(client.url, answer.status, raw))

    document: dict[str, Any] = json.loads(raw)
    return document


async def serve_stdio(
    client: Client, book: PlanBook, clock: Clock, *, read_only: bool, only: Collection[str] = ()
) -> None:
    """Serve on standard input and output until the input ends. ``only``: as in ``MoorageTools``.
    Raises ``InvalidInput``."""
    document = await fetch_document(client)
    tools = MoorageTools(client, document, book, clock, read_only=read_only, only=only)
    server = make_server(tools)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())
