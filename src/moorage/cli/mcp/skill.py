"""Skill for coding agents: how to use the MCP server, and a list of its tools. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from moorage.cli.mcp.tools import PLAN, Operation

_HEAD = """\
---
name: moorage
description: Run jobs, notebooks and model endpoints on the GPUs of a Moorage cluster. Use it to start,
  watch, explain and stop sessions, and to serve models.
---

# Moorage

The tools belong to `moorage mcp`. If they are missing, ask the user to add the server:
`claude mcp add moorage -- moorage mcp --gpu-hours 20`.

## How to change something

1. Call the tool `plan_…` with the complete request. It changes nothing. The answer has a `plan_id`, and what
   would happen (`would_happen`) or what is there now (`now`). `get_schema` describes the fields of
   a request.
2. Tell the user what the plan does, on how many GPUs and for how long.
3. Call `apply_plan` with the `plan_id`. A plan is used once, within ten minutes. If the resource has changed
   since, it is refused: plan again.

## How to run a job

1. `list_groups` and `list_agents` show the available GPUs.
2. `plan_create_session` with `command`, `resources` (such as `{"cuda.device": 1, "cpu": 4, "mem": "16GiB"}`)
   and `timeout_s`. `would_happen.fits` says whether it would start immediately; if not, the
   reasons are listed.
3. After `apply_plan`: `get_session` for its status, `explain_session` while it is PENDING, and
   `get_session_logs` for its output.
4. `plan_stop_session` for sessions that are not needed any more.

Errors name the field and the next step: follow it. Do not retry a refusal unchanged. Under a budget of GPU
hours, each session with GPUs needs `timeout_s` or `max_lifetime_s`, and work without an end is
refused: ask the user.

"""


def render(operations: Mapping[str, Operation]) -> str:
    reads = [
        (operation.name, operation.summary)
        for operation in operations.values()
        if not operation.writes
    ]
    plans = [
        (PLAN + operation.name, operation.summary)
        for operation in operations.values()
        if operation.writes
    ]
    tables = [
        f"## {title}\n\n| tool | |\n|---|---|\n"
        + "".join(f"| `{name}` | {text} |\n" for name, text in rows)
        for title, rows in (("Tools that read", reads), ("Tools that plan", plans))
    ]

    return _HEAD + "\n".join(tables)
