"""Whole managers in the scale benchmark: CPU of an idle leader and of another manager, with their
Postgres backends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from cluster import free_port, process
from measuring import cpu_s, family

STARTUP_S = 120.0
# the garbage collector's checks run once a minute
SETTLE_S = 45.0
MEASURE_S = 70.0
GOAL = {"leader": 0.10, "another manager": 0.02}


@dataclass(frozen=True)
class Share:
    """``manager`` and ``backends``: their shares of a core."""

    case: str
    role: str
    manager: float
    backends: float

    @property
    def total(self) -> float:
        return self.manager + self.backends


async def shares(dsn: str, case: str) -> list[Share]:
    """Start a leader and another manager on a database, and measure both at once."""
    home = Path(tempfile.mkdtemp(prefix="moorage-scale-"))
    env = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
    env |= {
        "MOORAGE_COMMON__LOG_LEVEL": "warning",
        "MOORAGE_COMMON__LINK_TOKEN": "scale",
        "MOORAGE_COMMON__LINK_TLS": "off",
        "MOORAGE_MANAGER__DSN": dsn,
        "MOORAGE_MANAGER__SUSPECT_AFTER_S": "1000000",
    }
    admin = await asyncpg.connect(dsn)
    try:
        with ExitStack() as stack:
            backends: dict[str, set[int]] = {}
            pids: dict[str, int] = {}
            for role in GOAL:
                before = await _backends(admin)
                listen = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
                command = (
                    "manager",
                    "--home",
                    str(home / role),
                    "--listen",
                    listen[0],
                    "--link-listen",
                    listen[1],
                )
                log = home / f"{role}.log"
                pids[role] = stack.enter_context(process(*command, env=env, log=log)).pid
                await _wait_until_serving(listen[0], log)
                await asyncio.sleep(5)  # until it has opened all connections that it keeps
                backends[role] = await _backends(admin) - before

            await asyncio.sleep(SETTLE_S)
            before_s = {role: (_cpu(family(pids[role])), _cpu(backends[role])) for role in GOAL}
            await asyncio.sleep(MEASURE_S)
            found = []
            for role, (own, theirs) in before_s.items():
                own = _cpu(family(pids[role])) - own
                theirs = _cpu(backends[role]) - theirs
                found.append(Share(case, role, own / MEASURE_S, theirs / MEASURE_S))

            return found
    finally:
        await admin.close()
        shutil.rmtree(home, ignore_errors=True)


async def _backends(admin: asyncpg.Connection) -> set[int]:
    rows = await admin.fetch("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
    return {row["pid"] for row in rows}


def _cpu(pids: Sequence[int] | set[int]) -> float:
    total = 0.0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total += cpu_s(pid)
    return total


async def _wait_until_serving(address: str, log: Path) -> None:
    host, _, port = address.partition(":")
    for _ in range(int(STARTUP_S / 0.2)):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            return
        await asyncio.sleep(0.2)
    raise SystemExit(f"the manager did not start:\n{log.read_text()[-2000:]}")


def table(found: Sequence[Share]) -> str:
    if not found:
        return ""

    lines = [
        "",
        "| larger size of | idle | manager, % of a core | its backends, % | both, % | goal, % |",
    ]
    lines.append("|---|---|---:|---:|---:|---:|")
    for share in found:
        goal = GOAL[share.role]
        mark = "" if share.total <= goal else " **"
        parts = f"{share.manager:.1%} | {share.backends:.1%} | {share.total:.1%}{mark} | {goal:.0%}"
        lines.append(f"| {share.case} | {share.role} | {parts.replace('%', '')} |")

    return "\n".join(lines)
