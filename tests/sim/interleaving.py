"""Interleaved transactions in the deterministic simulation: other managers act while one manager's
transaction is open.

The seed determines which statements stay open, and what happens during that time. Other statements
of the same manager wait, because its loops share its writers.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from .database import Operation, Postgres
from .manager import ManagerProcess


class Interleaving:
    """``interleaving_rng``: set in seeds in which transactions stay open. ``held``: the manager
    whose transaction is open."""

    rng: random.Random
    interleaving_rng: random.Random | None
    postgres: Postgres
    managers: list[ManagerProcess]
    held: ManagerProcess | None
    faults: bool

    create_session: Callable[[], Awaitable[None]]
    act_as_user: Callable[[], Awaitable[None]]
    deliver_report: Callable[[], Awaitable[None]]
    prepare_orders: Callable[[], Awaitable[None]]
    preempt_session: Callable[[], Awaitable[None]]
    run_loop: Callable[[], Awaitable[None]]

    def record(self, text: str) -> None:
        raise NotImplementedError

    def choose_manager(self, rng: random.Random | None = None) -> ManagerProcess:
        return (rng or self.rng).choice(
            [manager for manager in self.managers if manager is not self.held]
        )

    def keep_open(self, manager: ManagerProcess, operation: Operation) -> None:
        """Draw whether one of this operation's transactions stays open, and which one."""
        rng = self.interleaving_rng
        if rng is None or self.held is not None or len(self.managers) < 2 or not self.faults:
            return
        if rng.random() < 0.7:
            operation.open_at = rng.choice([0, 0, 0, 0, 1, 2])
            operation.meanwhile = lambda: self._act_beside(rng, manager, operation)

    async def _act_beside(
        self, rng: random.Random, manager: ManagerProcess, operation: Operation
    ) -> None:
        if not self.faults or self.held is not None:
            return  # it was paused, and resumed after transactions had stopped staying open

        self.held = manager
        self.record(f"{manager.name}: {operation.label}: a transaction stays open")
        waits = self.postgres.lock_waits
        self.postgres.time += rng.choice([0, 0, 1, 3])
        actions = {
            self.run_loop: 8, self.deliver_report: 5, self.prepare_orders: 2, self.preempt_session: 2,
            self.act_as_user: 3, self.create_session: 1,
        }  # fmt: skip
        try:
            for _ in range(rng.choice([1, 1, 2, 3])):
                await rng.choices(list(actions), list(actions.values()))[0]()
        finally:
            self.held = None

        waited = self.postgres.lock_waits > waits
        self.record(f"{manager.name}: {operation.label}: committed{', awaited' if waited else ''}")
