"""What users of the world do: they ask for sessions of all kinds, stop them, serve models and scale them."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from moorage.common.model.group_options import GroupOptions, PreemptionOptions
from moorage.common.model.spec import EndpointSpec, SessionSpec

from .managers import ManagerLife
from .node import Script


class Users:
    rng: random.Random
    dice: random.Random | None  # of the worlds in which more is asked of the scheduler
    managers: list[ManagerLife]
    acknowledged: set[str]
    sessions: list[str]
    endpoints: list[str]

    async def operate(self, manager: ManagerLife, label: str, work: Callable[[], Any]) -> Any:
        raise NotImplementedError

    async def user_creates(self) -> None:
        rng, manager = self.rng, self.rng.choice(self.managers)
        name = f"s{len(self.sessions)}"
        kind = rng.choice(["batch", "batch", "interactive"])
        script = Script(
            starts_in=rng.choice([0, 1, 5, 50]), runs_for=rng.choice([None, 0, 3, 60]) if kind != "batch" else
            rng.choice([0, 3, 60]), exit_code=rng.choice([0, 0, 1]), refused=rng.random() < 0.1,
            ends_in=rng.choice([0, 2, 60]), stubborn=rng.random() < 0.1,
        )  # fmt: skip
        more: dict[str, Any] = {"timeout_s": rng.choice([None, 20])} if kind == "batch" else {}
        if rng.random() < 0.3:
            more["max_lifetime_s"] = 40
        if rng.random() < 0.2:
            more["pending_timeout_s"] = 25
        if kind == "batch" and rng.random() < 0.3:
            more |= {"retries": 2, "retry_backoff_s": 3}
        more |= self.demands(manager, kind)
        gpu = rng.choice([0, 1, 1, 1, 2])
        spec = SessionSpec(
            name=name, type=kind, command=script.command(), start_timeout_s=20, stop_grace_s=5,
            resources={"cpu": rng.choice([1, 2, 6]), "cuda.device": gpu},
            max_attempts=rng.choice([1, 2, 3]), **more,
        )  # fmt: skip
        view = await self.operate(manager, f"create {name} ({kind}, {gpu} gpu, {script})", lambda: (
            manager.store.create_session(spec, actor="user")))  # fmt: skip
        self.sessions.append(name)
        if view is not None:
            self.acknowledged.add(view.id)

    def demands(self, manager: ManagerLife, kind: str) -> dict[str, Any]:
        """In some worlds sessions wait for each other or for a time, and some go before others."""
        dice, more = self.dice, dict[str, Any]()
        if dice is None:
            return more
        if self.sessions and dice.random() < 0.2:
            on = dice.choice(["any", "failure"])
            more["depends_on"] = [{"session": dice.choice(self.sessions), "on": on}]
        elif kind == "batch" and dice.random() < 0.1:
            more["starts_at"] = manager.clock.now() + timedelta(seconds=dice.choice([-5, 5, 30]))
        if dice.random() < 0.3:
            more["cluster"] = {
                "size": dice.choice([2, 2, 3]), "mode": dice.choice(["single-node", "multi-node"]),
                "on_kernel_loss": dice.choice(["end", "degrade"]),
            }  # fmt: skip
        return more | {"priority": dice.choice([10, 10, 50])}

    async def administrator_acts(self, dice: random.Random) -> None:
        manager, how = dice.choice(self.managers), dice.choice(["requeue", "end"])
        options = GroupOptions(
            hol=dice.choice(["strict", "skip", "backfill"]), strategy=dice.choice(["fifo", "lifo", "drf"]),
            agent_selection=dice.choice(["concentrated", "dispersed", "round-robin"]),
            preemption=dice.choice([None, PreemptionOptions(how=how), PreemptionOptions(how=how)]),
        )  # fmt: skip
        await self.operate(
            manager, f"options {options.model_dump(exclude_defaults=True)}",
            lambda: manager.store.put_group("default", options, actor="root"),
        )  # fmt: skip

    async def user_acts(self) -> None:
        if self.dice is not None and self.dice.random() < 0.3:
            await self.administrator_acts(self.dice)
        rng, manager = self.rng, self.rng.choice(self.managers)
        what = rng.choice(["stop", "stop", "endpoint", "scale", "delete"])
        if what == "stop" and self.sessions:
            name = rng.choice(self.sessions)
            await self.operate(
                manager, f"stop {name}", lambda: manager.store.stop_session(name, actor="user")
            )
        elif what == "endpoint" or not self.endpoints:
            name = f"e{len(self.endpoints)}"
            script = Script(
                starts_in=rng.choice([0, 3]), refused=rng.random() < 0.2, ends_in=rng.choice([0, 10])
            )
            spec = EndpointSpec(
                name=name, command=script.command(), probe={"path": "/"}, replicas=rng.choice([0, 1, 2]),
                resources={"cpu": 1, "cuda.device": rng.choice([0, 1])}, start_timeout_s=20, stop_grace_s=5,
            )  # fmt: skip
            self.endpoints.append(name)
            await self.operate(
                manager, f"endpoint {name}", lambda: manager.store.create_endpoint(spec, actor="user")
            )
        elif what == "scale":
            name, count = rng.choice(self.endpoints), rng.choice([0, 1, 3])
            await self.operate(
                manager, f"scale {name} to {count}",
                lambda: manager.store.scale_endpoint(name, count, actor="user"),
            )  # fmt: skip
        else:
            name = rng.choice(self.endpoints)
            await self.operate(
                manager, f"delete {name}", lambda: manager.store.delete_endpoint(name, actor="user")
            )
