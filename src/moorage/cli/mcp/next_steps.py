"""Next steps of errors for an agent, which has tools instead of the command line. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from moorage.cli.mcp.tools import PLAN

_COMMAND = re.compile(r"`moorage ([^`]*)`")
_FOR_THE_USER = "a command that the user can run"


@dataclass(frozen=True, slots=True)
class _Tool:
    """``argument``: the tool's argument that stands for the command's; "" if there is none."""

    name: str
    argument: str = ""


# By the words of the command, without its arguments.
TOOLS = {
    "agents": _Tool("list_agents"),
    "agents describe": _Tool("get_agent", "id"),
    "agents list": _Tool("list_agents"),
    "budgets": _Tool("list_budgets"),
    "budgets list": _Tool("list_budgets"),
    "describe": _Tool("get_session", "ref"),
    "endpoints": _Tool("list_endpoints"),
    "endpoints list": _Tool("list_endpoints"),
    "endpoints set": _Tool(PLAN + "update_endpoint", "name"),
    "extend": _Tool(PLAN + "extend_session", "ref"),
    "groups": _Tool("list_groups"),
    "groups describe": _Tool("get_group", "name"),
    "groups list": _Tool("list_groups"),
    "limits": _Tool("get_limits"),
    "logs": _Tool("get_session_logs", "ref"),
    "managers": _Tool("list_managers"),
    "pipelines": _Tool("list_pipelines"),
    "pipelines describe": _Tool("get_pipeline", "ref"),
    "pipelines list": _Tool("list_pipelines"),
    "projects": _Tool("list_projects"),
    "projects describe": _Tool("get_project", "name"),
    "projects members list": _Tool("list_project_members", "name"),
    "ps": _Tool("list_sessions"),
    "quotas": _Tool("list_quotas"),
    "rollout history": _Tool("list_revisions", "name"),
    "rollout promote": _Tool(PLAN + "promote_rollout", "name"),
    "rollout status": _Tool("get_rollout", "name"),
    "rollout undo": _Tool(PLAN + "undo_rollout", "name"),
    "scale": _Tool(PLAN + "scale_endpoint", "name"),
    "sessions": _Tool("list_sessions"),
    "sessions list": _Tool("list_sessions"),
    "stop": _Tool(PLAN + "stop_session", "ref"),
    "templates": _Tool("list_templates"),
    "templates describe": _Tool("get_template", "name"),
    "templates list": _Tool("list_templates"),
    "usage": _Tool("get_usage"),
    "why": _Tool("explain_session", "ref"),
    "workspaces": _Tool("list_workspaces"),
}
_MOST_WORDS = max(len(command.split()) for command in TOOLS)


def for_agent(text: str, offered: Collection[str]) -> str:
    """``text`` with commands replaced by the tools that do the same. A command without such a tool
    among those ``offered`` stays, marked as one for the user."""
    return _COMMAND.sub(lambda found: _replaced(found[1], offered) or _marked(found[0]), text)


def answer_for_agent(answer: Any, offered: Collection[str]) -> Any:
    """An answer of the manager with each of its ``next_step`` fields as in ``for_agent``."""
    if isinstance(answer, list):
        return [answer_for_agent(part, offered) for part in answer]
    if not isinstance(answer, dict):
        return answer

    return {
        name: for_agent(value, offered)
        if name == "next_step" and isinstance(value, str)
        else answer_for_agent(value, offered)
        for name, value in answer.items()
    }


def _replaced(command: str, offered: Collection[str]) -> str:
    words = command.split()
    for count in range(min(_MOST_WORDS, len(words)), 0, -1):
        tool = TOOLS.get(" ".join(words[:count]))
        given = words[count:]
        values = [word for word in given if not word.startswith("-")]
        # A word after a command without arguments belongs to another command, such as `groups set`.
        if tool is None or tool.name not in offered or (values and not tool.argument):
            continue
        if not values:
            return f"`{tool.name}`"

        others = "".join(f", {word}" for word in values[1:])
        return f"`{tool.name}` ({tool.argument}: {values[0]}{others})"

    return ""


def _marked(command: str) -> str:
    return f"{command} ({_FOR_THE_USER})"
