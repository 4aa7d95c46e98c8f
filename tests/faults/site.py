"""The site under test: a HEAppE server in this process in front of a scripted cluster that runs
real programs, and the faults of both."""

from __future__ import annotations

import random
import time

from moorage.common.views.resources import GroupOptions
from tests.heappe import HeappeServer, Script, ScriptedCluster, Site, Template, Timing
from tests.heappe.cluster import ACTIVE, Submission
from tests.heappe.database import ENDED
from tests.heappe.switches import Switches
from tests.heappe.wire import PROFILES
from tests.hpc.sites import PROGRAM, heappe_agent

from .site_truth import SiteJob

GROUP = SITE = "site"
# Shorter and longer than the possible lag of a site's database.
WALLTIMES_S = (75.0, 150.0)
QUEUE_S = (2.0, 8.0)
# How many calls a fault affects: few by chance, or all while it lasts.
SOME = -1
ALL = 1_000_000
# Users' requests are not repeated once they have been sent.
_JOBS: dict[str, int | str] = {"only": "JobManagement"}
# The faults, with the server switches that each sets.
SWITCHED: dict[str, dict[str, int | str]] = {
    "login-node-away": {"maintenance": True},
    "scheduler-away": {"slurm_down": True},
    "server-away": {},
    "tunnels-die": {},
    "full-queue": {},
    "job-cancelled": {},
    "submit-lost": {"submit_lost": 1},
    "answers-lost": _JOBS | {"answers_lost": SOME},
    "false-failed": {"false_failed": 1},
    "resets": {"resets": SOME},
    "hangs": {"hangs": SOME},
    "empty-errors": {"empty_500": SOME},
    "gateway-errors": {"gateway_html": ALL},
    "rate-limit": _JOBS | {"rate_limited": ALL},
    "full-pool": {"pool_full": ALL},
}


class FaultySite:
    """Runs in the event loop that starts it. The seed determines the server's profile and the
    walltime of jobs."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"{seed}-site")
        self._cluster = ScriptedCluster()
        self._cluster.script = self._script
        self._began = 0.0
        self.walltime_s = WALLTIMES_S[seed // len(PROFILES) % len(WALLTIMES_S)]
        self.server = HeappeServer(
            PROFILES[seed % len(PROFILES)],
            site=Site(templates=(Template(11, "moorage", 7, command=PROGRAM),)),
            timing=Timing(poll_s=0.5, cache_s=0.2),
            cluster=self._cluster,
        )

    def _script(self, job: Submission) -> Script:
        return Script(engine="program", queue_s=self._rng.uniform(*QUEUE_S))

    async def start(self) -> None:
        await self.server.start()
        self._began = time.monotonic()

    async def stop(self) -> None:
        await self.server.stop()

    @property
    def lasted_s(self) -> float:
        return time.monotonic() - self._began

    def agent(self) -> dict[str, str]:
        """The environment of the site's agent."""
        return heappe_agent(self.server.url) | {"MOORAGE_AGENT__RESOURCE_GROUP": GROUP}

    @property
    def group(self) -> GroupOptions:
        site = {"runtime": "heappe", "node_type": "gpu", "template": "moorage"}
        return GroupOptions.model_validate({"hpc": site | {"walltime_s": self.walltime_s}})

    async def begin(self, kind: str) -> None:
        for name, value in SWITCHED[kind].items():
            setattr(self.server.switches, name, self._rng.randint(2, 5) if value == SOME else value)

        match kind:
            case "login-node-away" | "tunnels-die":
                await self.server.tunnels.kill()
            case "server-away":
                await self.server.interrupt()
            case "full-queue":
                self._cluster.holding = True
            case "job-cancelled":
                await self._cancel_job()
            case "submit-lost":
                self.server.switches.submit_lost_as = self._rng.choice(
                    ("slurm", "ssh-command", "empty")
                )

    async def end(self, kind: str) -> None:
        usual = Switches()
        for name in SWITCHED[kind]:
            setattr(self.server.switches, name, getattr(usual, name))
        if kind == "server-away":
            await self.server.resume()
        self._cluster.holding = False

    async def _cancel_job(self) -> None:
        """Restart as an administrator of the cluster does."""
        running = [job.scheduler_id for job in self._cluster.jobs if job.state == "RUNNING"]
        if running:
            await self._cluster.cancel(self._rng.choice(running), self.server.clock.now())

    def jobs(self) -> list[SiteJob]:
        """All jobs that the cluster has ever had."""
        rows = {
            task.scheduler_id: task
            for row in self.server.database.jobs.values()
            for task in row.tasks
        }
        found = []
        for job in self._cluster.jobs:
            assert job.submitted is not None
            ended = None if job.state in ACTIVE else job.ended
            row = rows.get(job.scheduler_id)
            disowned = job.submitted
            if row is not None:
                disowned = row.end if row.state in ENDED else None

            started = job.started if job.nodes else None
            found.append(
                SiteJob(job.name, job.submitted, started=started, ended=ended, disowned=disowned)
            )

        return found

    def left(self) -> list[str]:
        """Jobs that are waiting or running."""
        unknown = {job.scheduler_id for job in self.server.unknown()}
        return [
            f"{job.name} is {job.state}{', unknown to HEAppE' if job.scheduler_id in unknown else ''}"
            for job in self._cluster.jobs
            if job.state in ACTIVE
        ]
