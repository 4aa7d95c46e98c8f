"""Cron jobs and notifications in the deterministic simulation: runs that start by themselves, and
a receiver that is told how every session ends, but often refuses."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from moorage.agent.runtimes.simulated import KernelScript
from moorage.common.model.cron_jobs import CronJobSpec
from moorage.common.model.spec import SessionSpec
from moorage.common.views.identity import UserSpec
from moorage.common.views.subscriptions import SubscriptionSpec
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.notifications.result import AttemptResult
from moorage.manager.store.notifications.subscriptions import SealedTarget
from moorage.manager.workloads.cron_times import CronTimes

from .database import Postgres
from .manager import ManagerProcess
from .node import Violation
from .workload import simulated

ROOT = Scope.system("root", Owner("root", "default"))
EVENTS = ("session.ended", "session.failed")
# Longer than the longest time between two attempts.
_PATIENCE_S = 4000
# Cron jobs by name, with what happens if the previous run has not ended.
CRON_JOBS = {"forbids": "forbid", "replaces": "replace"}


class Receiver:
    """``taken``: delivery id, event and session of each request that it has accepted."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.refuses = True
        self.taken: list[tuple[str, str, str]] = []

    async def send(
        self, url: str, secrets: Sequence[str], message_id: str, body: bytes
    ) -> AttemptResult:
        if self.refuses and self.rng.random() < 0.4:
            return AttemptResult(False, "answered 503")

        found = json.loads(body)
        self.taken.append((message_id, found["type"], found["data"]["id"]))
        return AttemptResult(True, "answered 200")


class Automation:
    """``automation_rng``: set in seeds that have cron jobs and notifications."""

    postgres: Postgres
    automation_rng: random.Random | None
    managers: list[ManagerProcess]
    receiver: Receiver
    keys: Path

    def begin_automation(self, seed: int) -> None:
        """Before the first manager starts. A restored backup would repeat what was sent since, so
        seeds with restores have none."""
        used = seed % 3 != 2 and seed % 7 in (0, 5)
        self.automation_rng = random.Random(seed + 10) if used else None
        self.receiver = Receiver(random.Random(seed + 11))
        self.keys = Path(tempfile.mkdtemp(prefix="moorage-sim-")) / "keys"

    def automate(self, manager: ManagerProcess) -> None:
        if self.automation_rng is not None:
            manager.automate(self.receiver)

    async def create_automation(self) -> None:
        if self.automation_rng is None:
            return

        store = self.managers[0].store
        await store.users.create(Scope.system(), UserSpec(name="root", platform_role="admin"))
        spec = SubscriptionSpec(
            name="ends",
            channel="webhook",
            target="https://example.com",
            events=list(EVENTS),
            own=False,
            all_projects=True,
        )
        await store.subscriptions.create(
            ROOT, spec, SealedTarget("https://example.com", "secret"), shown="https://example.com"
        )
        for name, concurrency in CRON_JOBS.items():
            script = KernelScript(run_s=self.automation_rng.choice([3, 100]))
            job = CronJobSpec.model_validate(
                {
                    "cron": "* * * * *",
                    "concurrency": concurrency,
                    "missed": self.automation_rng.choice(["skip", "run-once"]),
                    "history": 1000,
                    "session": SessionSpec(
                        command=simulated(script), resources={"cpu": 1}, stop_grace_s=5
                    ),
                }
            )
            next_at = CronTimes.of(job).next_after(await store.cron_jobs.now())
            await store.cron_jobs.create(ROOT, name, job, next_at)

    def automation_loops(self, manager: ManagerProcess) -> list[tuple[str, Callable[[], Any]]]:
        if self.automation_rng is None:
            return []
        return [
            ("cron", manager.run_cron),
            ("events", manager.assign_events),
            ("send", manager.send_notifications),
        ]

    async def check_cron_runs(self) -> None:
        """No two sessions belong to one run, and a run that forbids others is alone."""
        if self.automation_rng is None:
            return

        rows = await self.postgres.fetch(
            "SELECT s.name FROM sessions s WHERE s.created_by LIKE 'cron:%' "
            "AND NOT EXISTS (SELECT FROM cron_runs r WHERE r.session_id = s.id)"
        )
        if rows:
            raise Violation(f"sessions belong to no run: {[row['name'] for row in rows]}")

        rows = await self.postgres.fetch(
            "SELECT s.name FROM sessions s WHERE s.created_by = 'cron:forbids' "
            "AND s.status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')"
        )
        if len(rows) > 1:
            raise Violation(f"two runs of a job that forbids it: {[row['name'] for row in rows]}")

    async def check_automation(self, run: Callable[[float], Any]) -> None:
        """After everything was stopped: each end was reported, and under one id. ``run`` runs the
        loops after some seconds."""
        if self.automation_rng is None:
            return

        self.receiver.refuses = False
        for seconds in (1, 65, _PATIENCE_S, _PATIENCE_S, 65):
            await run(seconds)

        stuck = await self.postgres.fetch(
            "SELECT scheduled_at FROM cron_runs WHERE state = 'starting'"
        )
        if stuck:
            raise Violation(f"runs never started: {[row['scheduled_at'] for row in stuck]}")

        ended = await self.postgres.fetch(
            "SELECT id::text AS id, name FROM sessions WHERE endpoint_id IS NULL "
            "AND status IN ('TERMINATED', 'CANCELLED', 'ERROR')"
        )
        names = {row["id"]: row["name"] for row in ended}
        told = {session for _, _, session in self.receiver.taken}
        if lost := names.keys() - told:
            raise Violation(f"nobody was told how these ended: {sorted(names[i] for i in lost)}")
        if early := told - names.keys():
            raise Violation(f"reported ends that were none: {sorted(early)}")

        ids = {(session, message) for message, _, session in self.receiver.taken}
        if len(ids) > len(told):
            raise Violation("an end was reported under two ids")
