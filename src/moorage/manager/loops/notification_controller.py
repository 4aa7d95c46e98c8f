"""Notification controller: assigns events to the subscriptions that get them, and notices what only
time brings about: long waits, near ends, and endpoints that stay degraded.

It runs in the leader, which saves work; what makes each event unique is the outbox, so a former
leader does no harm.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.subscriptions import NotificationEvent
from moorage.manager.loops.leader import Leader
from moorage.manager.notifications.bodies import body
from moorage.manager.notifications.matching import Occurrence, Subscription, event_for
from moorage.manager.notifications.occurrences import (
    ending,
    of_agent,
    of_budget,
    of_endpoint,
    of_pipeline,
    of_session,
    waiting,
)
from moorage.manager.store import Store, Topic
from moorage.manager.store.database.rows import Row
from moorage.manager.store.notifications.outbox import BATCH, QueuedEvent

INTERVAL_S = 5.0
CHECK_S = 10.0
UPKEEP_S = 60.0
DEGRADED_S = 60.0
EXPIRE_S = 3 * 86_400.0
KEPT_S = 14 * 86_400.0


class NotificationController:
    def __init__(self, store: Store, leader: Leader, clock: Clock) -> None:
        self._store = store
        self._leader = leader
        self._clock = clock
        self._has_any = False
        self._checked_at = -CHECK_S
        self._kept_at = -UPKEEP_S
        self.loop = Loop(
            "notifications", self.run_once, interval_s=INTERVAL_S, clock=clock, bursts=True
        )
        notifier = store.notifier
        notifier.on(Topic.SUBSCRIPTIONS, self.loop.nudge)
        notifier.on_sessions(self._changed)
        notifier.on_budget_alerts(self._changed)

    def _changed(self, ids: Collection[str] | None) -> None:
        if self._has_any:
            self.loop.nudge()

    async def run_once(self) -> None:
        if self._leader.term is None:
            return

        outbox = self._store.outbox
        now = self._clock.monotonic()
        if now - self._kept_at >= UPKEEP_S:
            self._kept_at = now
            await outbox.expire(EXPIRE_S)
            await outbox.delete_old(KEPT_S)

        self._has_any = await outbox.has_subscriptions()
        if self._has_any and now - self._checked_at >= CHECK_S:
            self._checked_at = now
            await outbox.note_degraded(DEGRADED_S)
            await self._check_times()

        while rows := await outbox.read():
            await self.assign(rows)
            if len(rows) < BATCH:
                break

    async def assign(self, rows: Sequence[Row]) -> None:
        """Queue these rows of the outbox for the subscriptions that get them."""
        outbox = self._store.outbox
        subscriptions = [Subscription.of(row) for row in await outbox.subscriptions()]
        queued = []
        for outbox_id, occurrence in await self._occurrences(rows):
            queued += self._matching(subscriptions, occurrence, outbox_id)
        await outbox.assign([row["id"] for row in rows], queued)

    def _matching(
        self, subscriptions: Sequence[Subscription], occurrence: Occurrence, outbox_id: int | None
    ) -> list[QueuedEvent]:
        return [
            QueuedEvent(
                delivery_id=self._clock.new_id(),
                subscription_id=subscription.id,
                outbox_id=outbox_id,
                event=event,
                key=occurrence.key,
                subject=occurrence.subject,
                at=occurrence.at,
                body=body(event, occurrence.at, occurrence.data),
            )
            for subscription in subscriptions
            if outbox_id is None or outbox_id > subscription.after_event
            if (event := event_for(subscription, occurrence)) is not None
        ]

    async def _occurrences(self, rows: Sequence[Row]) -> list[tuple[int, Occurrence]]:
        outbox = self._store.outbox
        by_kind: defaultdict[str, set[str]] = defaultdict(set)
        for row in rows:
            by_kind[row["event"].partition(".")[0]].add(row["subject"])

        sessions = await outbox.facts("sessions", by_kind["session"])
        endpoints = await outbox.facts("endpoints", by_kind["endpoint"])
        ended = [row for row in rows if row["event"] == NotificationEvent.SESSION_ENDED]
        pipelines = await outbox.facts(
            "pipelines",
            {
                str(sessions[row["subject"]]["pipeline_id"])
                for row in ended
                if row["subject"] in sessions and sessions[row["subject"]]["pipeline_id"]
            },
        )
        keys = await outbox.facts(
            "keys",
            {
                row["body"]["name"]
                for row in rows
                if row["event"].startswith("budget.") and row["body"]["scope"] == "key"
            },
        )
        found: list[tuple[int, Occurrence]] = []
        for row in rows:
            subject = row["subject"]
            if row["event"].startswith("session."):
                if (session := sessions.get(subject)) is None:
                    continue
                if session["endpoint_id"] is None:  # otherwise, it is the endpoint that counts
                    found.append((row["id"], of_session(row, session)))
                if (
                    row["event"] == NotificationEvent.SESSION_ENDED
                    and session["pipeline_id"] in pipelines
                ):
                    pipeline = pipelines[session["pipeline_id"]]
                    found.append((row["id"], of_pipeline(row, pipeline)))
            elif row["event"].startswith("budget."):
                owner = keys.get(row["body"]["name"])
                found.append((row["id"], of_budget(row, "" if owner is None else owner["owner"])))
            elif row["event"] == NotificationEvent.NODE_LOST:
                found.append((row["id"], of_agent(row)))
            elif subject in endpoints:
                found.append((row["id"], of_endpoint(row, endpoints[subject])))

        return found

    async def _check_times(self) -> None:
        """Queue what has waited for long or is about to end since the last check.

        A repeated check finds what is already queued, so each is queued once."""
        rows = [row for row in await self._store.outbox.subscriptions() if row["allowed"]]
        now = self._leader.deadlines.now()
        await self._check(rows, now, NotificationEvent.SESSION_WAITING)
        await self._check(rows, now, NotificationEvent.SESSION_TIME_LIMIT)
        if rows:
            await self._store.outbox.checked(rows, now)

    async def _check(self, rows: Sequence[Row], now: datetime, event: NotificationEvent) -> None:
        outbox = self._store.outbox
        # One without events reports what sessions ask for.
        asking = [row for row in rows if event in row["events"] or not row["events"]]
        if not asking:
            return

        ends = event is NotificationEvent.SESSION_TIME_LIMIT
        pairs = await outbox.waiting(asking, now, ending=ends)
        sessions = await outbox.facts("sessions", {session for _, session in pairs})
        subscriptions = {row["id"]: Subscription.of(row) for row in asking}
        queued = []
        for subscription_id, session_id in pairs:
            session = sessions.get(session_id)
            if session is None or session["endpoint_id"] is not None:
                continue

            occurrence = (ending if ends else waiting)(session, now, subscription_id)
            queued += self._matching([subscriptions[subscription_id]], occurrence, None)

        if queued:
            await outbox.assign([], queued)
