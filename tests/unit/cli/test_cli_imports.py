"""Imports of the command line: a command starts without the libraries that it does not use."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

LIST_IMPORTS = """
import sys
from moorage.__main__ import main
try:
    main()
except SystemExit:
    pass
print()
print(*sys.modules)
"""
# Of components, and of other commands.
NEVER = {
    "alembic", "asyncpg", "cryptography", "docker", "grpc", "moorage.agent", "moorage.demo",
    "moorage.manager", "moorage.proxy", "moorage.server.bootstrap", "prometheus_client", "sqlalchemy",
    "structlog", "uvloop",
}  # fmt: skip
CLIENT = {"aiohttp", "asyncio", "moorage.common.views", "moorage.sdk.client"}


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
    assert not imports(*args) & (NEVER | CLIENT | {"moorage.cli.commands.list", "rich"})


@pytest.mark.parametrize("command", ["ps", "run", "start", "serve", "logs", "stop", "agents", "why"])
def test_help_of_a_command_imports_no_client(command: str) -> None:
    assert not imports(command, "--help") & (
        NEVER | {"aiohttp", "moorage.sdk.client", "moorage.sdk.transport", "moorage.common.model.base"}
    )


def test_ps_imports_only_the_client() -> None:
    # Nothing listens there.
    found = imports("ps", "--url", "http://127.0.0.1:9")
    assert not found & (NEVER | {"aiohttp", "moorage.sdk.client", "moorage.common.views.identity"})


@pytest.mark.parametrize(
    ("args", "bound"), [(("--help",), 220), (("version",), 330), (("ps", "--url", "http://127.0.0.1:9"), 450)]
)
def test_number_of_imported_modules_is_bounded(args: tuple[str, ...], bound: int) -> None:
    """Nearly all CPU of a short command is imports. A failure names a command that began to import more:
    ``python -X importtime -m moorage ...`` shows what."""
    assert len(modules(*args)) <= bound


@pytest.mark.parametrize("words", ["p", "stop --", "exec "])
def test_completion_imports_no_client(words: str) -> None:
    completing = {
        "_MOORAGE_COMPLETE": "complete_bash",
        "COMP_WORDS": f"moorage {words}",
        "COMP_CWORD": str(words.count(" ") + 1),
        "MOORAGE_URL": "http://127.0.0.1:9",
    }
    assert not imports(env=completing) & (NEVER | {"aiohttp", "moorage.sdk.client", "moorage.common.views"})
