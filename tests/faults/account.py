"""The account of a fault run: what was stored, in order, and what programs report about themselves.

The simulation's triggers write the same log here, so the ledger and pipelines of real processes are
held to the same truth as those in virtual time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from moorage.common.model.pipelines import PipelineSpec
from moorage.common.model.reasons import Reason
from moorage.manager.store.database.connections import prepare_connection
from tests.sim.ledger_truth import RECORD_CHANGES, compare
from tests.sim.node import Violation
from tests.sim.pipeline_truth import RECORD_STEPS, replay

from .findings import Invariant

_EXITED = (Reason.EXIT_ZERO, Reason.EXIT_NONZERO)
_SPEECHLESS_S = 2


async def begin(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("CREATE SCHEMA sim;" + RECORD_CHANGES + RECORD_STEPS)
    finally:
        await connection.close()


@dataclass(frozen=True)
class Charge:
    """The charge for a kernel (``id``), in seconds since 1970. ``reason``: why it ended, or "" if
    it was charged before its end was known, up to the last contact with its agent."""

    id: str
    began: int
    ended: int
    reason: str


def charged_wrongly(
    charges: list[Charge], starts: Mapping[str, int], ends: Mapping[str, int]
) -> list[str]:
    """By the programs' clock, no time before a program started is charged, and all time until it
    exited is.

    A program that was stopped at once, like a sub kernel whose main1 ends, may not have had time to
    report its start.
    """
    found = []
    for one in charges:
        was_cut_off = one.reason not in _EXITED and one.ended - one.began <= _SPEECHLESS_S
        if one.id not in starts and was_cut_off:
            continue

        if one.id not in starts or one.began < starts[one.id]:
            found.append(f"{one.id} is charged from {one.began}, and began at {starts.get(one.id)}")
        elif one.reason in _EXITED and one.ended < ends.get(one.id, 0):
            found.append(f"{one.id} is charged until {one.ended}, and exited at {ends[one.id]}")

    return found


class Account:
    """``site_agent``: its work is charged by the site's clock, and left to ``site_truth``.
    ``step_sessions``: ids of the pipelines' sessions. ``site_charges``: the charges for the site's
    jobs."""

    def __init__(self, connection: asyncpg.Connection, site_agent: str = "") -> None:
        self._connection = connection
        self._site_agent = site_agent
        self.step_sessions: set[str] = set()
        self.site_charges: list[Charge] = []

    async def check(
        self, starts: Path, ends: Path, pipelines: Mapping[str, str]
    ) -> list[Invariant]:
        """``starts``, ``ends``: lines from programs, with kernel and time (clock ticks since boot,
        and seconds since 1970). ``pipelines``: the acknowledged names by id."""
        await prepare_connection(self._connection)
        return [
            await self._check_ledger(),
            await self._check_programs(_since_1970(_times(starts)), _times(ends)),
            *await self._check_pipelines(pipelines),
        ]

    async def _check_ledger(self) -> Invariant:
        changes = await self._connection.fetch(
            "SELECT * FROM sim.changes WHERE kind <> 'kernel' OR agent_id <> $1 ORDER BY n",
            self._site_agent,
        )
        records = await self._connection.fetch(
            "SELECT l.kernel_id, l.began_at, l.ended_at FROM ledger l JOIN kernels k ON k.id = l.kernel_id "
            "WHERE k.agent_id <> $1",
            self._site_agent,
        )
        invariant = Invariant(
            "the ledger has what ran, to the second", len({r["kernel_id"] for r in records})
        )
        try:
            compare(changes, records)
        except Violation as violation:
            invariant.violations.append(str(violation))

        return invariant

    async def _check_programs(
        self, starts: Mapping[str, int], ends: Mapping[str, int]
    ) -> Invariant:
        rows = await self._connection.fetch(
            "SELECT DISTINCT l.kernel_id::text AS id, extract(epoch FROM l.began_at)::bigint AS began, "
            "extract(epoch FROM l.ended_at)::bigint AS ended, k.agent_id, "
            "CASE WHEN l.at < k.status_since THEN '' ELSE k.reason END AS reason "
            "FROM ledger l JOIN kernels k ON k.id = l.kernel_id"
        )
        charges: dict[bool, list[Charge]] = {True: [], False: []}
        for row in rows:
            charge = Charge(row["id"], row["began"], row["ended"], row["reason"])
            charges[row["agent_id"] == self._site_agent].append(charge)

        self.site_charges = charges[True]
        wrong = charged_wrongly(charges[False], starts, ends)
        return Invariant(
            "what is charged is what programs say of themselves", len(charges[False]), wrong
        )

    async def _check_pipelines(self, acknowledged: Mapping[str, str]) -> list[Invariant]:
        rows = await self._connection.fetch("SELECT id, name, spec FROM pipelines")
        self.step_sessions = {
            row["id"]
            for row in await self._connection.fetch("SELECT session_id AS id FROM pipeline_steps")
        }
        names = [row["name"] for row in rows]
        lost = acknowledged.keys() - {row["id"] for row in rows}
        once = Invariant(
            "an acknowledged pipeline exists, once",
            len(acknowledged),
            [acknowledged[one] for one in lost] + [n for n in set(names) if names.count(n) > 1],
        )
        order = Invariant(
            "steps run, are skipped and run again as their pipeline says", len(self.step_sessions)
        )
        specs = {str(row["id"]): PipelineSpec.model_validate(row["spec"]) for row in rows}
        try:
            truths = replay(
                specs, await self._connection.fetch("SELECT * FROM sim.steps ORDER BY n")
            )
        except Violation as violation:
            order.violations.append(str(violation))
        else:
            order.violations += [
                f"{t.name}: {i} waits" for t in truths.values() for i in t.waiting_in_vain()
            ]

        return [once, order]


def _since_1970(ticks: Mapping[str, int]) -> dict[str, int]:
    booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return {id: int(booted_at + each / os.sysconf("SC_CLK_TCK")) for id, each in ticks.items()}


def _times(file: Path) -> dict[str, int]:
    if not file.exists():
        return {}
    lines: list[Any] = [line.split() for line in file.read_text().splitlines()]
    return {line[0]: int(line[-1]) for line in lines}
