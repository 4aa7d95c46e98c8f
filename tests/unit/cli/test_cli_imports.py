"""Imports of the command line: a command starts without the libraries that it does not use."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from fake_manager import KEY, FakeManager
from scripted_session import batch, runs

from moorage.common.model.reasons import Reason

LIST_IMPORTS = """
import sys
from moorage.__main__ import main
sys.argv[0] = "moorage"  # names the variables of completion
try:
    main()
except SystemExit:
    pass
print()
print(*sys.modules)
"""
# Modules of components and of other commands.
NEVER = {
    "alembic", "asyncpg", "cryptography", "docker", "grpc", "moorage.agent", "moorage.demo",
    "moorage.manager", "moorage.proxy", "moorage.server.bootstrap", "prometheus_client", "sqlalchemy",
    "structlog", "uvloop",
}  # fmt: skip


# typer's option converters, and the models of the views.
MODELS = {"pydantic", "pydantic_core", "typer._adapters"}
TRANSPORT = {"aiohttp", "asyncio", "ssl", "yarl"}


def modules(*args: str, env: dict[str, str] | None = None) -> list[str]:
    command = [sys.executable, "-c", LIST_IMPORTS, *args]
    result = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, **(env or {})}
    )
    return result.stdout.splitlines()[-1].split()


def imports(*args: str, env: dict[str, str] | None = None) -> set[str]:
    names = modules(*args, env=env)
    return {".".join(name.split(".")[:length]) for name in names for length in (1, 2, 3, 4)}


@pytest.mark.parametrize("args", [("--help",), ("version",), ("--version",)])
def test_root_imports_no_command(args: tuple[str, ...]) -> None:
    assert not imports(*args) & (NEVER | MODELS | TRANSPORT | {"moorage.cli.commands.ps", "rich"})


@pytest.mark.parametrize(
    "command", ["ps", "run", "start", "serve", "logs", "stop", "agents", "why"]
)
def test_help_of_a_command_imports_no_client(command: str) -> None:
    assert not imports(command, "--help") & (
        NEVER | MODELS | TRANSPORT | {"h11", "moorage.sdk.client", "moorage.sdk.transport", "rich"}
    )


@pytest.mark.parametrize(
    "args", [("ps",), ("ps", "-o", "wide"), ("sessions",), ("endpoints", "list")]
)
def test_lists_import_no_models(args: tuple[str, ...], manager: FakeManager) -> None:
    manager.add_session(batch("job"))
    reached = {"MOORAGE_URL": manager.url, "MOORAGE_API_KEY": KEY}
    assert not imports(*args, env=reached) & (NEVER | MODELS | TRANSPORT | {"moorage.common.views"})


def test_ps_in_json_imports_only_the_resources_of_its_lists(manager: FakeManager) -> None:
    found = imports("ps", "-o", "json", env={"MOORAGE_URL": manager.url, "MOORAGE_API_KEY": KEY})
    assert not found & (NEVER | {"aiohttp", "moorage.common.views.identity"})
    assert {name for name in found if name.startswith("moorage.sdk.resources.")} == {
        "moorage.sdk.resources.endpoints",
        "moorage.sdk.resources.pipelines",
        "moorage.sdk.resources.sessions",
    }


@pytest.mark.parametrize("args", [("run", "--", "true"), ("logs", "job")])
def test_followed_logs_import_no_aiohttp(args: tuple[str, ...], manager: FakeManager) -> None:
    manager.next_session(**runs(0, Reason.EXIT_ZERO, b"done\n"))
    manager.add_session(batch("job"))
    assert not imports(*args, env={"MOORAGE_URL": manager.url, "MOORAGE_API_KEY": KEY}) & (
        NEVER | {"aiohttp"}
    )


@pytest.mark.parametrize(
    ("args", "bound"),
    [(("--help",), 200), (("version",), 200), (("run", "--help"), 230), (("ps",), 280)],
)
def test_number_of_imported_modules_is_bounded(
    args: tuple[str, ...], bound: int, manager: FakeManager
) -> None:
    """Nearly all CPU time of a short command goes into imports. A failure names a command that now
    imports more; ``python -X importtime -m moorage ...`` shows which modules."""
    manager.add_session(batch("job"))
    assert len(modules(*args, env={"MOORAGE_URL": manager.url, "MOORAGE_API_KEY": KEY})) <= bound


@pytest.mark.parametrize("words", ["p", "stop --", "stop "])
def test_completion_imports_no_client(words: str, manager: FakeManager) -> None:
    completing = {
        "_MOORAGE_COMPLETE": "complete_bash",
        "COMP_WORDS": f"moorage {words}",
        "COMP_CWORD": str(words.count(" ") + 1),
        "MOORAGE_URL": manager.url,
        "MOORAGE_API_KEY": KEY,
    }
    found = imports(env=completing)
    assert not found & (NEVER | MODELS | TRANSPORT | {"moorage.sdk.client", "moorage.common.views"})
    assert ("h11" in found) == (words == "stop ")  # names were requested
