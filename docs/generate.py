"""Generator of the documents that follow from the code: ``python docs/generate.py PAGE``.

Prints the document. The glossary keeps what is written by hand up to the marker and replaces what follows.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import typer
from pydantic import BaseModel

from moorage import __version__
from moorage.__main__ import app
from moorage.agent.metrics import AgentMetrics, page_of
from moorage.cli.mcp import skill
from moorage.cli.mcp.tools import operations
from moorage.common.config.settings import Settings
from moorage.common.model import features
from moorage.common.model.reasons import REASONS
from moorage.manager.api import problem_types
from moorage.manager.api.exposition import exposition
from moorage.manager.api.openapi import describe
from moorage.manager.api.routes import ROUTES
from moorage.manager.lifecycle.diagram import render_document
from moorage.manager.metrics import Metrics as ManagerMetrics
from moorage.proxy.metrics import Metrics as ProxyMetrics

GLOSSARY = Path(__file__).with_name("glossary.md")
MARKER = "<!-- Generated from here on by `make docs`. -->"
Rows = Iterable[tuple[str, str]]


def reasons() -> Iterator[tuple[str, str]]:
    for reason, info in REASONS.items():
        if reason:
            yield reason.value, info.text


def settings() -> Iterator[tuple[str, str]]:
    for section in Settings.model_fields:
        kind = type(getattr(Settings(), section))
        described = docstrings(kind)
        for name in kind.model_fields:
            yield f"{section}.{name}", described.get(name, "")


def docstrings(kind: type) -> dict[str, str]:
    """The docstrings below the fields of a class. A daemon does not spend its start on them."""
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    inherited = {
        name: text
        for base in kind.__bases__
        if base not in (BaseModel, object)
        for name, text in docstrings(base).items()
    }
    return inherited | {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }  # fmt: skip


def metrics() -> Iterator[tuple[str, str]]:
    usage: Any = SimpleNamespace(latest=SimpleNamespace(devices={}, kernels={}, node=(0, 0)), dropped=0)
    agent = AgentMetrics(sampler=usage, offers=list, kernels=dict, connected=bool)
    found: dict[str, str] = {}
    for text in (ManagerMetrics().render(), page_of(agent)(), ProxyMetrics().text(), exposition([])):
        found |= re.findall(r"^# HELP ((?:moorage|process)_\S+) (.*)$", text.decode(), re.MULTILINE)
    # The client library adds the creation time of every counter and histogram.
    yield from ((name, meaning) for name, meaning in found.items() if not name.endswith("_created"))


def commands() -> Iterator[tuple[str, str]]:
    def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        for name, child in sorted(getattr(command, "commands", {}).items()):
            if not child.hidden:
                yield " ".join((*path, name)), child.get_short_help_str(limit=200)
                yield from walk(child, (*path, name))

    root: Any = typer.main.get_command(app)
    context = typer.Context(root)
    for name in root.list_commands(context):
        root.get_command(context, name)  # imports it
    return walk(root, ("moorage",))


def glossary() -> str:
    """Return the glossary with its generated sections. Raises ``ValueError`` for an undescribed entry."""
    text = GLOSSARY.read_text().partition(MARKER)[0] + MARKER + "\n"
    sections: list[tuple[str, str, Rows]] = [
        ("Reasons", "reason", reasons()),
        ("Settings", "setting", settings()),
        ("Metrics", "metric", metrics()),
        ("Commands", "command", commands()),
    ]
    for title, column, rows in sections:
        text += f"\n## {title}\n\n| {column} | meaning |\n|---|---|\n"
        for name, meaning in rows:
            if not meaning.strip():
                raise ValueError(f"{name} has no description: write one where it is defined")
            text += f"| `{name}` | {' '.join(meaning.split()).replace('|', '/')} |\n"
    return text


def openapi() -> str:
    """The description of the REST API, from which the types of the web console are made."""
    return json.dumps(describe(ROUTES, __version__))


def agent_skill() -> str:
    """The skill that teaches coding agents the tools of ``moorage mcp``."""
    return skill.render(operations(describe(ROUTES, __version__)))


def main(which: str) -> None:
    pages = {
        "state-machine": render_document,
        "session-types": features.render_document,
        "problems": problem_types.render_document,
        "glossary": glossary,
        "openapi": openapi,
        "skill": agent_skill,
    }
    print(pages[which](), end="")


if __name__ == "__main__":
    main(sys.argv[1])
