"""Invariants of the deterministic simulation. Each check raises ``Violation``."""

from __future__ import annotations

import random

from moorage.common.model.status import STARTING, Status

from .database import Postgres
from .ledger_truth import compare
from .manager import LOST_GRACE_S, SUSPECT_AFTER_S, ManagerProcess
from .node import Node, Violation

# Transitions caused by a passed deadline, with the virtual time that the session had spent in its
# status.
_EARLY = """
SELECT * FROM (
    SELECT s.name, h.event, h.from_status, h.reason, h.detail, m.time - e.time AS spent_s, CASE
        WHEN h.event = 'expired' THEN (s.spec ->> 'pending_timeout_s')::float8
        WHEN h.from_status = 'SCHEDULED' THEN 60
        WHEN h.reason = 'start-timeout' THEN (s.spec ->> 'start_timeout_s')::float8 + 30
        ELSE (s.spec ->> (replace(h.reason, '-', '_') || '_s'))::float8
    END AS limit_s
    FROM session_history h JOIN sim.moves m USING (session_id, revision)
    JOIN sessions s ON s.id = h.session_id
    CROSS JOIN LATERAL (
        SELECT em.time FROM session_history e JOIN sim.moves em USING (session_id, revision)
        WHERE e.session_id = h.session_id AND e.revision < h.revision
          AND e.from_status IS DISTINCT FROM e.to_status
        ORDER BY e.revision DESC LIMIT 1) e
    WHERE h.event = 'expired' OR (h.from_status = 'RUNNING' AND h.reason IN ('timeout', 'max-lifetime'))
       OR (h.reason = 'start-timeout' AND h.from_status NOT IN ('TERMINATING', 'PENDING')
           AND h.detail LIKE 'no kernel became ready%')
) passed WHERE spent_s < limit_s - 1
"""


class Invariants:
    """``lost_node``: the node that never returns. ``acknowledged``: the ids of the sessions whose
    creation was confirmed."""

    postgres: Postgres
    id_rng: random.Random
    managers: list[ManagerProcess]
    nodes: list[Node]
    lost_node: Node | None
    acknowledged: set[str]
    interleaving_rng: random.Random | None
    quota: int | None

    async def check_pipelines(self) -> object:
        raise NotImplementedError

    async def check_templates(self) -> None:
        raise NotImplementedError

    async def check_cron_runs(self) -> None:
        raise NotImplementedError

    async def check_always(self, grace_s: float) -> None:
        """Checks that must hold at any time, including during faults."""
        # A separate manager process: no fault injection, and no crash.
        observer = ManagerProcess("observer", self.postgres, self.id_rng)
        found = await observer.store.integrity.check(grace_s=grace_s)

        # Kernels that the database does not have are a finding, not a fault: they result from a
        # restore.
        discrepancies = [d for d in found if d.check != "unknown"]
        if discrepancies:
            raise Violation("; ".join(f"{d.check}: {d.subject}: {d.detail}" for d in discrepancies))

        rows = await self.postgres.fetch("SELECT id FROM sessions")
        missing = self.acknowledged - {row["id"] for row in rows}
        if missing:
            raise Violation(f"acknowledged sessions are missing: {missing}")

        await self.check_gone_kernels()
        await self.check_clusters()
        await self.check_durations()
        await self.check_places()
        await self.check_shared_runs()
        await self.check_quota()
        await self.check_ledger()
        await self.check_cron_runs()
        await self.check_holds()
        await self.check_pipelines()
        await self.check_templates()
        if self.postgres.former_leaders:
            raise Violation(self.postgres.former_leaders[0])

    async def check_holds(self) -> None:
        """No session was placed between a hold and its release."""
        placed = await self.postgres.fetch(
            "SELECT p.session_id FROM session_history p WHERE p.event = 'placed' AND 'held' = ("
            "SELECT h.event FROM session_history h WHERE h.session_id = p.session_id "
            "AND h.revision < p.revision AND h.event IN ('held', 'released') "
            "ORDER BY h.revision DESC LIMIT 1)"
        )
        if placed:
            raise Violation(f"held sessions were placed: {[row['session_id'] for row in placed]}")

    async def check_ledger(self) -> None:
        """Every kernel is charged once, for the time during which it ran."""
        changes = await self.postgres.fetch("SELECT * FROM sim.changes ORDER BY n")
        compare(
            changes, await self.postgres.fetch("SELECT kernel_id, began_at, ended_at FROM ledger")
        )

    async def check_durations(self) -> None:
        """No agent is marked LOST too early, and no deadline passes too early, no matter what the
        clocks did."""
        for row in await self.postgres.fetch(
            "SELECT * FROM sim.losses WHERE silent_s < $1", SUSPECT_AFTER_S + LOST_GRACE_S
        ):
            raise Violation(f"agent {row['agent_id']} is LOST after {row['silent_s']} s of silence")
        for row in await self.postgres.fetch(_EARLY):
            raise Violation(f"session {row['name']} passed its deadline early: {dict(row)}")

    async def check_places(self) -> None:
        """Work is placed on agents that can accept it. If transactions interleave, an agent may
        become unable to do so while a placement waits."""
        if self.interleaving_rng is not None:
            return
        for row in await self.postgres.fetch("SELECT * FROM sim.misplaced"):
            raise Violation(
                f"kernel {row['kernel_id']} was placed on {row['agent_id']}, which {row['state']}"
            )

    async def check_quota(self) -> None:
        """No matter which manager leads, no more sessions are placed than the group's quota
        allows."""
        rows = await self.postgres.fetch(
            "SELECT name FROM sessions "
            "WHERE status IN ('SCHEDULED', 'PREPARING', 'CREATING', 'RUNNING', 'TERMINATING')"
        )
        if self.quota is not None and len(rows) > self.quota:
            raise Violation(f"more than {self.quota} are placed: {[row['name'] for row in rows]}")

    async def check_gone_kernels(self) -> None:
        """A kernel that is stored as ended does not run, because it is stored as ended only after
        it has ended."""
        rows = await self.postgres.fetch(
            "SELECT id, agent_id, reason, coalesce(observed, status) AS state FROM kernels "
            "WHERE status IN ('TERMINATED', 'ERROR')"
        )
        gone = {row["id"]: f"{row['state']} by {row['agent_id']} ({row['reason']})" for row in rows}
        for node in [*self.nodes, *([self.lost_node] if self.lost_node else [])]:
            for kernel_id in node.programs():
                if kernel_id in gone:
                    raise Violation(
                        f"kernel {kernel_id} runs on {node.name}, and is stored as {gone[kernel_id]}"
                    )

    def check_orders(self) -> None:
        """After the faults, agents obey their orders."""
        for node in self.nodes:
            if self.postgres.time - node.refused_at < 100:
                raise Violation(f"{node.name} refuses orders that are older than those it has seen")

    async def check_clusters(self) -> None:
        """Either all or none of an attempt's kernels are placed, and all on one agent or each on a
        different one."""
        rows = await self.postgres.fetch(
            "SELECT s.name, k.attempt, s.spec #>> '{cluster,mode}' AS mode, "
            "(s.spec #>> '{cluster,size}')::int AS size, count(k.agent_id) AS placed, "
            "count(DISTINCT k.agent_id) AS agents FROM kernels k "
            "JOIN sessions s ON s.id = k.session_id WHERE s.spec ? 'cluster' GROUP BY s.id, k.attempt"
        )
        for row in rows:
            agents = row["size"] if row["mode"] == "multi-node" else 1
            if row["placed"] and (row["placed"], row["agents"]) != (row["size"], agents):
                raise Violation(f"a cluster is partly placed: {dict(row)}")

    async def check_shared_runs(self) -> None:
        """A session that shares a run has no run of its own, and equal requests that share a run
        are run only once."""
        for row in await self.postgres.fetch(
            "SELECT s.name, k.status FROM sessions s JOIN kernels k ON k.session_id = s.id "
            "WHERE s.adopted_from IS NOT NULL AND k.agent_id IS NOT NULL AND k.attempt = s.attempt"
        ):
            raise Violation(
                f"session {row['name']} shares a run, and its kernel is {row['status']}"
            )

        for row in await self.postgres.fetch(
            "SELECT array_agg(name) AS names FROM sessions WHERE adopted_from IS NULL "
            "AND spec ->> 'reuse' IN ('live', 'both') AND request_hash IS NOT NULL "
            "AND status IN ('SCHEDULED', 'PREPARING', 'CREATING', 'RUNNING') "
            "GROUP BY project, request_hash HAVING count(*) > 1"
        ):
            raise Violation(f"equal requests run at once: {row['names']}")

    async def check_mirrors(self) -> None:
        """After the faults, sessions that share an ended run have ended in the same way, unless
        they were stopped."""
        rows = await self.postgres.fetch(
            "SELECT s.name, s.status, s.reason, s.result, o.name AS of, o.status AS of_status, "
            "o.result AS of_result FROM sessions s JOIN sessions o ON o.id = s.adopted_from "
            "WHERE o.status IN ('TERMINATED', 'CANCELLED', 'ERROR')"
        )
        for row in rows:
            if row["reason"] == "user-requested":
                continue
            if (row["status"], row["result"]) != (row["of_status"], row["of_result"]):
                raise Violation(f"a session that shares a run did not end as it: {dict(row)}")

    async def check_kernels(self) -> None:
        """After the faults, every kernel that runs is supposed to run, and every kernel that is
        stored as RUNNING does run."""
        rows = await self.postgres.fetch("SELECT id, status FROM kernels WHERE status <> 'PENDING'")
        statuses = {row["id"]: Status(row["status"]) for row in rows}
        alive = {
            k: node.name
            for node in self.nodes
            for k, kernel in node.runtime.items()
            if kernel.alive
        }
        for kernel_id, node_name in alive.items():
            if statuses.get(kernel_id) not in (*STARTING, Status.RUNNING, Status.TERMINATING):
                raise Violation(
                    f"kernel {kernel_id} runs on {node_name} and is {statuses.get(kernel_id)}"
                )

        for kernel_id, status in statuses.items():
            if status is Status.RUNNING and kernel_id not in alive:
                raise Violation(f"kernel {kernel_id} is RUNNING, and runs on no node")

    async def check_sessions(self) -> None:
        """After the faults, every pending session can still start, and every ended one has a
        reason."""
        rows = await self.postgres.fetch(
            "SELECT s.name, s.status, s.hold, s.reason, s.attempt, s.deadline_at FROM sessions s "
            "WHERE s.status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')"
        )
        for row in rows:
            if (
                row["status"] == Status.PENDING
                and row["hold"] is not None
                and row["deadline_at"] is None
            ):
                refusals = row["hold"]["refusals"]
                if refusals and all("avoided" in refusal for refusal in refusals):
                    raise Violation(f"session {row['name']} waits forever: {refusals}")

        ended = await self.postgres.fetch(
            "SELECT name FROM sessions WHERE status IN ('TERMINATED', 'CANCELLED', 'ERROR') AND reason = ''"
        )
        if ended:
            raise Violation(f"sessions ended without a reason: {[row['name'] for row in ended]}")

    async def check_lost_agents(self) -> None:
        """Sessions end when their agent is lost, unless their spec says otherwise."""
        rows = await self.postgres.fetch(
            "SELECT s.name FROM sessions s JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt "
            "JOIN agents a ON a.id = k.agent_id WHERE a.status = 'LOST' "
            "AND s.spec ->> 'on_lost_agent' IS NULL AND (s.spec ->> 'retries')::int = 0 "
            "AND NOT s.spec ? 'cluster' AND s.status IN ('SCHEDULED', 'PREPARING', 'CREATING', 'RUNNING')"
        )
        if rows:
            raise Violation(f"sessions go on without their agent: {[row['name'] for row in rows]}")

    async def check_nothing_remains(self) -> None:
        """After everything was stopped, no session is live and nothing is allocated."""
        live = await self.postgres.fetch(
            "SELECT name, status FROM sessions WHERE status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')"
        )
        allocated = await self.postgres.fetch(
            "SELECT agent_id, slot, device_id, used FROM agent_slots WHERE used <> 0"
        )
        running = {node.name: list(node.runtime) for node in self.nodes if node.runtime}
        if live or allocated or running:
            raise Violation(f"remaining: sessions {live}, slots {allocated}, kernels {running}")
