"""Truth about the ledger: what every kernel must be charged, derived by replaying a log of what was
stored.

The simulation's triggers write the log, in the order of the changes. Each entry names the
transaction that made it and the transactions that this one saw: a transaction that ends a kernel
uses the last agent contact that it saw, not one that another transaction was about to commit. The
replay uses the rules in ``docs/usage.md``, and shares nothing with the triggers that write the
ledger.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from .node import Violation

_ENDED = ("TERMINATED", "CANCELLED", "ERROR")
RECORD_CHANGES = """
CREATE TABLE sim.changes (n bigserial PRIMARY KEY, at timestamptz, kind text, id text, status text,
    session_id text, agent_id text, attempt int, observed text, last_seen timestamptz,
    made_by bigint DEFAULT pg_current_xact_id()::text::bigint, saw text DEFAULT pg_current_snapshot()::text);
CREATE FUNCTION sim.record_kernel() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO sim.changes (at, kind, id, status, session_id, agent_id, attempt, observed)
    VALUES (now(), 'kernel', NEW.id, NEW.status, NEW.session_id, NEW.agent_id, NEW.attempt, NEW.observed);
    RETURN NEW; END $$;
CREATE TRIGGER record_kernel AFTER UPDATE OF status ON kernels FOR EACH ROW
    WHEN (NEW.status <> OLD.status) EXECUTE FUNCTION sim.record_kernel();
CREATE FUNCTION sim.record_session() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO sim.changes (at, kind, id, status, attempt)
    VALUES (now(), 'session', NEW.id, NEW.status, NEW.attempt);
    RETURN NEW; END $$;
CREATE TRIGGER record_session AFTER UPDATE OF status, attempt ON sessions FOR EACH ROW
    EXECUTE FUNCTION sim.record_session();
CREATE FUNCTION sim.record_agent() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO sim.changes (at, kind, id, status, last_seen)
    VALUES (now(), 'agent', NEW.id, NEW.status, NEW.last_seen);
    RETURN NEW; END $$;
CREATE TRIGGER record_agent AFTER INSERT OR UPDATE ON agents FOR EACH ROW EXECUTE FUNCTION sim.record_agent();
"""


@dataclass(frozen=True)
class _Agent:
    """A row as it was after a change. ``made_by``: the transaction that made the change."""

    made_by: int = 0
    status: str = ""
    last_seen: datetime | None = None
    seen_before: datetime | None = None
    back_at: datetime | None = None


@dataclass
class _Kernel:
    session_id: str
    attempt: int
    agent_id: str
    began_at: datetime
    ended_at: datetime | None = None


@dataclass
class Truth:
    agents: dict[str, list[_Agent]] = field(default_factory=dict)
    kernels: dict[str, _Kernel] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)  # the sessions' latest rows

    def see(self, row: Any) -> None:
        {"agent": self._agent, "session": self._session, "kernel": self._kernel}[row["kind"]](row)

    def _agent(self, row: Any) -> None:
        states = self.agents.setdefault(row["id"], [])
        before = states[-1] if states else _Agent()
        agent = replace(
            before, made_by=row["made_by"], status=row["status"], last_seen=row["last_seen"]
        )
        if row["status"] == "ALIVE" and before.status in ("SUSPECT", "LOST"):
            agent = replace(agent, seen_before=before.last_seen, back_at=row["at"])
        states.append(agent)

    def _agent_seen_by(self, row: Any, agent_id: str) -> _Agent:
        """The agent as seen by the transaction that changed ``row``."""
        return next(state for state in reversed(self.agents[agent_id]) if _saw(row, state.made_by))

    def _session(self, row: Any) -> None:
        """Kernels that an attempt leaves on a silent agent when it ends are charged up to the last
        contact. Kernels that it leaves on an agent that falls silent later are charged once their
        end is known."""
        latest = self.attempts.get(row["id"], 1)
        self.attempts[row["id"]] = row["attempt"]
        if row["status"] not in _ENDED and row["attempt"] == latest:
            return

        for kernel in self.kernels.values():
            agent = self._agent_seen_by(row, kernel.agent_id)
            if (kernel.session_id, kernel.attempt) == (
                row["id"],
                latest,
            ) and agent.status != "ALIVE":
                kernel.ended_at = kernel.ended_at or agent.last_seen

    def _kernel(self, row: Any) -> None:
        if row["status"] == "RUNNING":
            made = _Kernel(row["session_id"], row["attempt"], row["agent_id"], row["at"])
            self.kernels.setdefault(row["id"], made)

        kernel = self.kernels.get(row["id"])
        if kernel is None or kernel.ended_at is not None or row["status"] not in _ENDED:
            return

        agent = self._agent_seen_by(row, kernel.agent_id)
        returned = agent.back_at is not None and row["at"] - agent.back_at < timedelta(seconds=10)
        if agent.status != "ALIVE":
            kernel.ended_at = agent.last_seen
        elif row["observed"] == "GONE" and returned:
            kernel.ended_at = agent.seen_before
        else:
            kernel.ended_at = row["at"]

    def charges(self) -> dict[str, tuple[datetime, datetime]]:
        """The period for which each ended kernel is charged."""
        found = {}
        for kernel_id, kernel in self.kernels.items():
            if kernel.ended_at is not None:
                began, ended = (
                    at.replace(microsecond=0) for at in (kernel.began_at, kernel.ended_at)
                )
                found[kernel_id] = began, max(began, ended)
        return found


def _saw(row: Any, transaction: int) -> bool:
    """Whether the transaction that changed ``row`` is this one or saw this one's effects.
    ``row["saw"]`` is a Postgres snapshot: the first transaction that was running, the first that
    had not begun, and the running ones in between."""
    first_running, first_unborn, running = row["saw"].split(":")
    if transaction == row["made_by"] or transaction < int(first_running):
        return True
    return transaction < int(first_unborn) and str(transaction) not in running.split(",")


def compare(changes: list[Any], records: list[Any]) -> int:
    """Returns how many kernels were charged. Raises ``Violation`` if the ledger differs."""
    truth = Truth()
    for row in changes:
        truth.see(row)

    expected = truth.charges()
    charged: dict[str, set[tuple[datetime, datetime]]] = {}
    for row in records:
        charged.setdefault(str(row["kernel_id"]), set()).add((row["began_at"], row["ended_at"]))

    for kernel_id in expected.keys() | charged.keys():
        if charged.get(kernel_id) != {expected.get(kernel_id)}:
            found = charged.get(kernel_id)
            right = expected.get(kernel_id)
            raise Violation(f"kernel {kernel_id} is charged {found}, and must be {right}")

    return len(expected)
