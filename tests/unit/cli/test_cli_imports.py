"""Imports of the command line: a command starts without the libraries that it does not use."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIST_IMPORTS = """
import sys
from moorage.__main__ import main
try:
    main()
except SystemExit as end:
    assert end.code == CODE, end.code
print(*sys.modules)
"""
# Of components, and of other commands.
NEVER = {
    "alembic", "asyncpg", "cryptography", "docker", "grpc", "moorage.agent", "moorage.demo",
    "moorage.manager", "moorage.proxy", "moorage.server.bootstrap", "prometheus_client", "sqlalchemy",
    "structlog", "uvloop",
}  # fmt: skip
CLIENT = {"aiohttp", "asyncio", "moorage.common.views", "moorage.sdk.client"}


def imports(*args: str, code: int = 0) -> set[str]:
    program = LIST_IMPORTS.replace("CODE", str(code))
    command = [sys.executable, "-c", program, *args]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    names = result.stdout.splitlines()[-1].split()
    return {".".join(name.split(".")[:length]) for name in names for length in (1, 2, 3, 4)}


@pytest.mark.parametrize("args", [("--help",), ("version",)])
def test_root_imports_no_command(args: tuple[str, ...]) -> None:
    assert not imports(*args) & (NEVER | CLIENT | {"moorage.cli.commands.list", "rich"})


@pytest.mark.parametrize("args", [("ps", "--help"), ("run", "--help"), ("agents", "--help")])
def test_help_of_a_command_imports_no_client(args: tuple[str, ...]) -> None:
    assert not imports(*args) & (NEVER | {"aiohttp", "moorage.sdk.client"})


def test_ps_imports_only_the_client() -> None:
    # Nothing listens there.
    found = imports("ps", "--url", "http://127.0.0.1:9", code=1)
    assert not found & (NEVER | {"aiohttp"})
