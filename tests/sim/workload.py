"""The workload of the deterministic simulation: users and administrators who make random API
calls."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

from moorage.agent.runtimes.simulated import KernelScript
from moorage.common.model.errors import MoorageError
from moorage.common.model.group_options import GroupOptions, PreemptionOptions
from moorage.common.model.ids import SessionId
from moorage.common.model.roles import Role
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.views.resources import SessionPatch
from moorage.manager.identity.scope import Scope
from moorage.manager.workloads.session_changes import change_of, find_refusal

from .manager import ManagerProcess


class Workload:
    rng: random.Random
    scheduling_rng: random.Random | None  # set in a third of the seeds
    lease_rng: random.Random | None  # set in seeds in which nodes hold leases
    reuse_rng: random.Random | None  # set in seeds in which equal requests share a run
    update_rng: random.Random | None  # set in seeds in which users change their sessions
    managers: list[ManagerProcess]
    acknowledged: set[str]
    overlapping: set[str]  # names of sessions whose attempts may overlap
    sessions: list[str]
    endpoints: list[str]

    def choose_manager(self, rng: random.Random | None = None) -> ManagerProcess:
        raise NotImplementedError

    async def operate(self, manager: ManagerProcess, label: str, work: Callable[[], Any]) -> Any:
        raise NotImplementedError

    async def create_session(self) -> None:
        rng = self.rng
        manager = self.choose_manager()
        name = f"s{len(self.sessions)}"
        kind = rng.choice(["batch", "batch", "interactive"])
        script = KernelScript(
            start_s=rng.choice([0, 1, 5, 50]),
            run_s=rng.choice([0, 3, 60] if kind == "batch" else [None, 0, 3, 60]),
            exit_code=rng.choice([0, 0, 1]),
            refusal="no such program" if rng.random() < 0.1 else "",
            stop_s=rng.choice([0, 2, 60]),
            hangs=rng.random() < 0.1,
        )
        options: dict[str, Any] = {"timeout_s": rng.choice([None, 20])} if kind == "batch" else {}
        if rng.random() < 0.3:
            options["max_lifetime_s"] = 40
        if rng.random() < 0.2:
            options["pending_timeout_s"] = 25
        if kind == "batch" and rng.random() < 0.3:
            options |= {"retries": 2, "retry_backoff_s": 3}
        if kind == "batch" and rng.random() < 0.4:
            policies = ["wait", "fail", "requeue"] if "retries" in options else ["wait", "fail"]
            options["on_lost_agent"] = rng.choice(policies)
        if rng.random() < 0.1:
            options["overlap"] = "allowed"
            self.overlapping.add(name)

        options |= self.draw_scheduling_options(manager, kind)
        if kind == "batch" and self.lease_rng is not None and self.lease_rng.random() < 0.7:
            # The program runs for a long time and does not survive a kill, because otherwise an
            # expired lease could not stop it.
            script = replace(script, run_s=200, hangs=False)
            lease_s = self.lease_rng.choice([30, 120, 120])
            options |= {"retries": 2, "retry_backoff_s": 3, "timeout_s": None}
            options |= {"on_lost_agent": "requeue", "lease_s": lease_s}

        gpu = rng.choice([0, 1, 1, 1, 2])
        spec = SessionSpec(
            name=name, type=kind, command=simulated(script), start_timeout_s=20, stop_grace_s=5,
            resources={"cpu": rng.choice([1, 2, 6]), "cuda.device": gpu},
            max_attempts=rng.choice([1, 2, 3]), **options,
        )  # fmt: skip
        if self.reuse_rng is not None and self.reuse_rng.random() < 0.6:
            spec = self.draw_equal_request(self.reuse_rng, name)

        view = await self.operate(manager, f"create {name} ({kind}, {gpu} gpu, {script})", lambda: (
            manager.store.sessions.create(Scope.system("user"), spec)))  # fmt: skip
        self.sessions.append(name)
        if view is not None:
            self.acknowledged.add(view.id)

    def draw_equal_request(self, rng: random.Random, name: str) -> SessionSpec:
        """One of three requests that end differently."""
        script = rng.choice(
            [
                KernelScript(start_s=1, run_s=20),
                KernelScript(run_s=3, exit_code=1),
                KernelScript(run_s=60),
            ]
        )
        return SessionSpec(
            name=name, type="batch", command=simulated(script), start_timeout_s=20, stop_grace_s=5,
            resources={"cpu": 1}, max_attempts=2, reuse=rng.choice(["both", "both", "live", "success"]),
        )  # fmt: skip

    def draw_scheduling_options(self, manager: ManagerProcess, kind: str) -> dict[str, Any]:
        """Dependencies, start times, clusters and priorities, in the seeds that have them."""
        rng = self.scheduling_rng
        options = dict[str, Any]()
        if rng is None:
            return options

        if self.sessions and rng.random() < 0.2:
            on = rng.choice(["any", "failure"])
            options["depends_on"] = [{"session": rng.choice(self.sessions), "on": on}]
        elif kind == "batch" and rng.random() < 0.1:
            options["starts_at"] = manager.clock.now() + timedelta(seconds=rng.choice([-5, 5, 30]))

        if rng.random() < 0.3:
            options["cluster"] = {
                "size": rng.choice([2, 2, 3]), "mode": rng.choice(["single-node", "multi-node"]),
                "on_kernel_loss": rng.choice(["end", "degrade"]),
            }  # fmt: skip

        return options | {"priority": rng.choice([10, 10, 50])}

    async def act_as_administrator(self, rng: random.Random) -> None:
        manager = self.choose_manager(rng)
        how = rng.choice(["requeue", "end"])
        options = GroupOptions(
            hol=rng.choice(["strict", "skip", "backfill"]), strategy=rng.choice(["fifo", "lifo", "drf"]),
            agent_selection=rng.choice(["concentrated", "dispersed", "round-robin"]),
            preemption=rng.choice([None, PreemptionOptions(how=how), PreemptionOptions(how=how)]),
        )  # fmt: skip
        await self.operate(
            manager, f"options {options.model_dump(exclude_defaults=True)}",
            lambda: manager.store.groups.put("default", options, actor="root"),
        )  # fmt: skip

    async def change_session(self, rng: random.Random) -> None:
        """Hold, release, requeue or change a session, as far as its status allows."""
        manager = self.choose_manager(rng)
        name = rng.choice(self.sessions)
        patch = rng.choice(
            [{"held": True}, {"held": False}, {"priority": rng.randrange(20)}, {"time_limit_s": 15}]
        )
        requeues = rng.random() < 0.3
        user = Scope.system("user")

        async def change() -> None:
            with suppress(MoorageError):
                found = await manager.store.sessions.get(user, name)
                if requeues:
                    await manager.terminator.requeue(user, SessionId(found.id))
                    return

                wanted = SessionPatch.model_validate(patch)
                if find_refusal(found, wanted, Role.ADMIN) is None:
                    made = change_of(found, wanted, user="user", role=Role.ADMIN)
                    await manager.store.session_records.update(user, found, made)

        await self.operate(
            manager, f"requeue {name}" if requeues else f"change {name} {patch}", change
        )

    async def act_as_user(self) -> None:
        if self.scheduling_rng is not None and self.scheduling_rng.random() < 0.3:
            await self.act_as_administrator(self.scheduling_rng)

        if self.update_rng is not None and self.sessions and self.update_rng.random() < 0.5:
            await self.change_session(self.update_rng)

        rng = self.rng
        manager = self.choose_manager()
        action = rng.choice(["stop", "stop", "endpoint", "scale", "delete"])
        if action == "stop" and self.sessions:
            name = rng.choice(self.sessions)
            user = Scope.system("user")
            await self.operate(manager, f"stop {name}", lambda: manager.terminator.stop(user, name))
        elif action == "endpoint" or not self.endpoints:
            name = f"e{len(self.endpoints)}"
            script = KernelScript(
                start_s=rng.choice([0, 3]),
                refusal="no such program" if rng.random() < 0.2 else "",
                stop_s=rng.choice([0, 10]),
            )
            spec = EndpointSpec(
                name=name, command=simulated(script), probe={"path": "/"}, replicas=rng.choice([0, 1, 2]),
                resources={"cpu": 1, "cuda.device": rng.choice([0, 1])}, start_timeout_s=20, stop_grace_s=5,
            )  # fmt: skip
            self.endpoints.append(name)
            await self.operate(
                manager,
                f"endpoint {name}",
                lambda: manager.store.endpoints.create(Scope.system("user"), spec),
            )
        elif action == "scale":
            name = rng.choice(self.endpoints)
            count = rng.choice([0, 1, 3])
            await self.operate(
                manager, f"scale {name} to {count}",
                lambda: manager.store.endpoints.scale(Scope.system(), name, count),
            )  # fmt: skip
        else:
            name = rng.choice(self.endpoints)
            await self.operate(
                manager,
                f"delete {name}",
                lambda: manager.store.endpoints.delete(Scope.system(), name),
            )


def simulated(script: KernelScript) -> list[str]:
    """A command that contains the script for the simulated node."""
    return ["script", json.dumps(asdict(script))]
