"""Routes of code execution. A part of the route table."""

from __future__ import annotations

from moorage.common.model.session_access import Action
from moorage.common.views.executions import (
    CodeKernelView,
    CompletionSpec,
    CompletionView,
    ExecutionInput,
    ExecutionSpec,
    ExecutionView,
)
from moorage.manager.api import code
from moorage.manager.api.route import Items, Route, route

_SESSION = "/v1/sessions/{ref:.+}"
_EXECUTIONS = f"{_SESSION}/executions"

CODE_ROUTES: tuple[Route, ...] = (
    route(
        "POST",
        f"{_EXECUTIONS}/completions",
        code.complete,
        "Complete code in a code kernel of a session",
        CompletionView,
        body=CompletionSpec,
        action=Action.CODE,
    ),
    route(
        "POST",
        f"{_EXECUTIONS}/{{run_id}}/input",
        code.give_input,
        "Answer a run of code that waits for input",
        ExecutionView,
        body=ExecutionInput,
        action=Action.CODE,
    ),
    route(
        "POST",
        f"{_EXECUTIONS}/{{run_id}}/interrupt",
        code.interrupt,
        "Interrupt a run of code, or remove it from its queue",
        ExecutionView,
        query=code.ReadQuery,
        action=Action.CODE,
    ),
    route(
        "GET",
        f"{_EXECUTIONS}/{{run_id}}/events",
        code.follow,
        "Follow what a run of code prints, up to its end: as server-sent events, or in a WebSocket",
        "text/event-stream",
        query=code.FollowQuery,
        action=Action.CODE,
    ),
    route(
        "GET",
        f"{_EXECUTIONS}/{{run_id}}",
        code.get_execution,
        "Read on in a run of code",
        ExecutionView,
        query=code.ReadQuery,
        action=Action.RESULTS,
    ),
    route(
        "POST",
        _EXECUTIONS,
        code.execute,
        "Run code in a session; what it defines lasts for the next run",
        ExecutionView,
        body=ExecutionSpec,
        action=Action.CODE,
    ),
    route(
        "GET",
        f"{_SESSION}/code-kernels",
        code.list_kernels,
        "List the kernelspecs of a session and the states of their code kernels",
        Items[CodeKernelView],
        query=code.KernelQuery,
        action=Action.RESULTS,
    ),
    route(
        "POST",
        f"{_SESSION}/code-kernels/{{language}}/restart",
        code.restart_kernel,
        "End a code kernel and its runs: the next run starts with nothing defined",
        CodeKernelView,
        query=code.KernelQuery,
        action=Action.CODE,
    ),
)
