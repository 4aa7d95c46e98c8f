"""Generator of what others are made from: ``python docs/generate.py openapi`` or ``skill`` prints
it."""

from __future__ import annotations

import json
import sys
from typing import Any

from moorage import __version__
from moorage.cli.mcp import skill
from moorage.cli.mcp.tools import operations
from moorage.manager.api.http.openapi import describe
from moorage.manager.api.routes import ROUTES


def description() -> dict[str, Any]:
    return describe(ROUTES, __version__)


def openapi() -> str:
    """The description of the REST API, from which the types of the web console are made."""
    return json.dumps(description())


def agent_skill() -> str:
    """The skill that teaches coding agents the tools of ``moorage mcp``."""
    return skill.render(operations(description()))


if __name__ == "__main__":
    print({"openapi": openapi, "skill": agent_skill}[sys.argv[1]](), end="")
