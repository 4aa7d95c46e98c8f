"""Reference pages, which follow from the code: ``python docs/reference.py FOLDER`` writes them.

``docs/reference.md`` says what each holds. ``docs/site_pages.py`` adds them to the site.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import typer
from pydantic import BaseModel

import moorage
import moorage.__main__  # adds the commands of the components
from moorage.agent.metrics import AgentMetrics, page_of
from moorage.cli.app import full_root
from moorage.common.config.settings import Settings
from moorage.common.config.sharing import why_local
from moorage.common.model import features
from moorage.manager.api.http import problem_types
from moorage.manager.api.http.openapi import describe
from moorage.manager.api.metering.exposition import exposition
from moorage.manager.api.routes import ROUTES
from moorage.manager.lifecycle import diagram
from moorage.manager.metrics import ManagerMetrics
from moorage.proxy.core.metrics import ProxyMetrics
from moorage.sdk import Client, SyncClient

_HTTP = ("get", "post", "put", "patch", "delete")


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def described(name: str, meaning: str) -> str:
    """The meaning as a cell of a table. Raises ``ValueError`` for an empty one."""
    if not meaning.strip():
        raise ValueError(f"{name} has no description: write one where it is defined")
    return cell(meaning)


def commands() -> Iterator[str]:
    """The help of every command, as it prints it."""
    root = full_root()

    def walk(command: Any, context: Any) -> Iterator[str]:
        described(context.command_path, command.get_short_help_str(limit=200))
        yield f"## {context.command_path}\n\n```text\n{command.get_help(context).strip()}\n```\n"
        for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
            child = command.get_command(context, name)
            if not child.hidden:
                yield from walk(child, typer.Context(child, info_name=name, parent=context))

    yield "# Commands\n\nThe help of every command. Each takes the options of its connection and output.\n"
    yield from walk(root, typer.Context(root, info_name="moorage"))


def rest() -> Iterator[str]:
    """Every route of the OpenAPI document."""
    yield "# REST API\n"
    yield "From the OpenAPI document, which a manager serves at `/openapi.json`, with every schema.\n"

    for path, operations in describe(ROUTES, moorage.__version__)["paths"].items():
        yield f"## {path.replace('{', '&#123;')}\n"
        for method in filter(operations.__contains__, _HTTP):
            operation = operations[method]
            yield f"### {method.upper()} {path.replace('{', '&#123;')}\n\n{operation.get('summary', '')}\n"
            if text := operation.get("description"):
                yield f"{text}\n"

            yield from _parameters(operation)
            for status, answer in operation["responses"].items():
                yield f"* `{status}` {cell(answer.get('description', ''))}{_schema(answer)}"

            yield ""


def _parameters(operation: Mapping[str, Any]) -> Iterator[str]:
    if body := operation.get("requestBody"):
        yield f"Body{_schema(body)}\n"
    given = [one for one in operation.get("parameters", ()) if "name" in one]
    if given:
        yield "| parameter | in | meaning |\n|---|---|---|"
        for one in given:
            yield f"| `{one['name']}` | {one['in']} | {cell(one.get('description', ''))} |"
        yield ""


def _schema(answer: Mapping[str, Any]) -> str:
    names = re.findall(r"#/components/schemas/(\w+)", json.dumps(answer.get("content", {})))
    return f" (`{names[0]}`)" if names else ""


def settings() -> Iterator[str]:
    yield "# Settings\n"
    yield "From flags, `MOORAGE_SECTION__NAME` in the environment, `moorage.toml`, etcd, defaults, "
    yield "in this order.\n\n*In etcd*: whether a daemon takes it from there.\n"

    for section in Settings.model_fields:
        kind = type(getattr(Settings(), section))
        texts = docstrings(kind)
        yield f"## {section}\n\n| setting | default | in etcd | meaning |\n|---|---|---|---|"

        for name, field in kind.model_fields.items():
            setting = f"{section}.{name}"
            value = field.get_default(call_default_factory=True)
            default = cell(repr(str(value) if isinstance(value, Path) else value))
            meaning = described(setting, texts.get(name, ""))
            yield f"| `{setting}` | `{default}` | {'–' if why_local(setting) else 'yes'} | {meaning} |"

        yield ""


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


def metrics() -> Iterator[str]:
    yield "# Metrics\n\n| metric | meaning |\n|---|---|"
    for name, meaning in sorted(metric_texts().items()):
        yield f"| `{name}` | {described(name, meaning)} |"


def metric_texts() -> dict[str, str]:
    """The help of every metric of a manager, an agent and a proxy, by its name."""
    usage: Any = SimpleNamespace(
        latest=SimpleNamespace(devices={}, kernels={}, node=(0, 0)), dropped=0
    )
    agent = AgentMetrics(sampler=usage, offers=list, kernels=dict, connected=bool)
    found: dict[str, str] = {}
    manager = ManagerMetrics()
    texts = (
        manager.render(),
        manager.ledger.render(),
        page_of(agent)(),
        ProxyMetrics().text(),
        exposition([]),
    )
    for text in texts:
        found |= re.findall(r"^# HELP ((?:moorage|process)_\S+) (.*)$", text.decode(), re.MULTILINE)

    # The client library adds the creation time of every counter and histogram.
    return {name: meaning for name, meaning in found.items() if not name.endswith("_created")}


def python_client() -> Iterator[str]:
    """Every resource of the Python client with its calls."""
    yield "# Python client\n"
    yield "The calls of `Client`, from `moorage.sdk`. Each resource is an attribute of the client. "
    yield "`SyncClient` has the same calls without `async` and `await`.\n"
    yield "| resource | meaning | calls |\n|---|---|---|"

    found = {name: resource_type(Client, name) for name in sorted(Client.__annotations__)}
    for name, kind in found.items():
        meaning = described(f"client.{name}", _prose(kind)).split(". ")[0].removesuffix(".")
        calls = ", ".join(f"`{call}`" for call in calls_of(kind))
        yield f"| [`{name}`](#{name}) | {meaning} | {calls} |"

    yield "\nThe types of what calls take and return are those of `moorage.sdk.types` and of the"
    yield "modules of `moorage.common.views`.\n"
    for name, kind in found.items():
        blocking = resource_type(SyncClient, name)
        yield f"## {name}\n\n{_prose(kind)}\n"
        for call, definition in calls_of(kind).items():
            yield f"### {name}.{call}\n\n```python\n{definition}\n```\n"
            if text := _prose(getattr(kind, call)):
                yield f"{text}\n"
            if not hasattr(blocking, call):
                yield "`SyncClient` does not have this call: it needs asyncio.\n"


def resource_type(client: type, name: str) -> Any:
    """The class of a resource of ``Client`` or ``SyncClient``."""
    return getattr(import_module(f"moorage.sdk.resources.{name}"), client.__annotations__[name])


def calls_of(kind: type) -> dict[str, str]:
    """The signatures of the calls of a resource by their names, as the source has them without
    ``self``."""
    lines = textwrap.dedent(inspect.getsource(kind)).splitlines()
    (definition,) = ast.parse("\n".join(lines)).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for node in definition.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
            begin = min(part.lineno for part in (node, *node.decorator_list))
            head = textwrap.dedent("\n".join(lines[begin - 1 : node.body[0].lineno - 1]))
            found[node.name] = re.sub(r"\bself(,\s*)?", "", head, count=1).removesuffix(":")

    return found


def _prose(documented: Any) -> str:
    """A docstring as Markdown."""
    return (inspect.getdoc(documented) or "").replace("``", "`")


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "commands": commands,
    "rest": rest,
    "python-client": python_client,
    "settings": settings,
    "metrics": metrics,
    "problems": problem_types.document,
    "session-types": features.document,
    "session-states": diagram.document,
}


def write(folder: Path) -> None:
    """Write every page into ``folder``. Raises ``ValueError`` for a setting, metric or command that
    is not described."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in PAGES.items():
        (folder / f"{name}.md").write_text("\n".join(lines()) + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
