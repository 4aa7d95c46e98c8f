"""Notification sender: sends due deliveries. Every manager runs one.

A manager claims a subscription under a lease before it sends anything for it, so each subscription
has one sender and a slow receiver delays no other. What a dead manager had claimed is taken over
when the lease ends; an attempt that it did not record is repeated, under the same id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.errors import ConfigError, StoreUnavailable
from moorage.manager.notifications import bodies
from moorage.manager.notifications.attempts import (
    DISABLE_AFTER_S,
    MAIL_PAUSE_S,
    backoff_s,
    pause_s,
    verdict,
)
from moorage.manager.notifications.mail import Mailer
from moorage.manager.notifications.result import AttemptResult
from moorage.manager.notifications.webhook import Webhooks
from moorage.manager.store import Store, Topic
from moorage.manager.store.database.rows import Row
from moorage.manager.store.notifications.outbox import AttemptEnd
from moorage.manager.store.notifications.subscriptions import SealedTarget

log = structlog.get_logger("moorage.notifications")
INTERVAL_S = 5.0
# Longer than an attempt by mail and its two statements.
LEASE_S = 60.0
CONCURRENT = 20
# Attempts for one subscription before others get their turn.
TURN = 50
MAIL_EVENTS = 50
JITTER = 0.2
STOP_S = 5.0


class NotificationSender:
    """Sends while it is entered."""

    def __init__(self, store: Store, clock: Clock, webhooks: Webhooks, mailer: Mailer) -> None:
        self._store = store
        self._clock = clock
        self._webhooks = webhooks
        self._mailer = mailer
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self.loop = Loop("notifications.send", self.run_once, interval_s=INTERVAL_S, clock=clock)
        store.notifier.on(Topic.SUBSCRIPTIONS, self.loop.nudge)

    async def __aenter__(self) -> NotificationSender:
        await self.loop.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._stopping = True
        await self.loop.__aexit__()
        if self._tasks:  # an attempt that is recorded is not repeated
            await asyncio.wait(self._tasks, timeout=STOP_S)
        await cancel_and_wait(*self._tasks)
        self._mailer.close()

    async def finished(self) -> None:
        """Wait until everything that has been claimed is done."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def run_once(self) -> None:
        free = CONCURRENT - len(self._tasks)
        if free <= 0 or self._stopping:
            return

        lease = self._clock.new_id()
        for row in await self._store.outbox.claim(lease, LEASE_S, free):
            task = spawn("notifications.subscription", self._work(row, lease))
            self._tasks.add(task)
            task.add_done_callback(self._done)

        next_s = await self._store.outbox.next_s()
        self.loop.repeat_after(min(max(next_s or INTERVAL_S, 0.1), INTERVAL_S))

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.loop.nudge()

    async def _work(self, row: Row, lease: str) -> None:
        """Send what is due for one subscription."""
        try:
            await self._send_due(row, lease)
        except (StoreUnavailable, ConfigError) as error:  # the lease ends, and someone repeats it
            log.warning("cannot send notifications", subscription=row["name"], why=str(error))

    async def _send_due(self, row: Row, lease: str) -> None:
        outbox = self._store.outbox
        subscription_id = row["id"]
        if not row["allowed"] and row["enabled"]:
            await outbox.disable(subscription_id, "its owner may no longer read the project")

        target = await self._store.subscriptions.sealed(subscription_id)
        if target is None:
            return

        is_mail = row["channel"] == "mail"
        enabled = row["enabled"] and row["allowed"]
        failures = row["failures"]
        woken: int | None = None
        for _ in range(TURN):
            woken, deliveries = await outbox.begin(
                subscription_id,
                lease,
                lease_s=LEASE_S,
                limit=MAIL_EVENTS if is_mail else 1,
                mail_id=self._clock.new_id() if is_mail else None,
                only_tests=not enabled,
            )
            if woken is None:
                return
            if not deliveries:
                break

            result = await self._attempt(row, target, deliveries)
            failures = 0 if result.succeeded else failures + 1
            outcome = self._outcome(row, deliveries, result, failures)
            await outbox.end(subscription_id, [d["id"] for d in deliveries], outcome)
            if outcome.disables:
                log.warning("subscription disabled", subscription=row["name"], why=outcome.disables)
            if not result.succeeded or is_mail or self._stopping:
                break

        await outbox.release(subscription_id, lease, woken if woken is not None else -1)

    async def _attempt(
        self, row: Row, target: SealedTarget, deliveries: Sequence[Row]
    ) -> AttemptResult:
        if row["channel"] == "mail":
            to = row["target"] or row["email"]
            if not to:
                return AttemptResult(False, "its user has no e-mail address", permanent=True)

            lines = [bodies.line(d["event"], d["body"]["data"]) for d in deliveries]
            return await self._mailer.send(to, deliveries[0]["mail_id"], lines)

        delivery = deliveries[0]
        document: dict[str, Any] = delivery["body"]
        if row["format"] != "json":
            text = bodies.line(delivery["event"], document["data"])
            body = bodies.chat_body(row["format"], text)
        else:
            body = bodies.json_body(document)

        secrets = [target.secret, target.previous if row["signs_twice"] else ""]
        return await self._webhooks.send(
            target.url, [secret for secret in secrets if secret], delivery["id"], body
        )

    def _outcome(
        self, row: Row, deliveries: Sequence[Row], result: AttemptResult, failures: int
    ) -> AttemptEnd:
        if result.succeeded:
            pause = MAIL_PAUSE_S if row["channel"] == "mail" else None
            return AttemptEnd("delivered", result.answer, succeeded=True, pause_s=pause)

        attempts = max(delivery["attempts"] for delivery in deliveries)
        age_s = max(delivery["age_s"] for delivery in deliveries)
        again = not result.permanent and verdict(attempts, age_s) == "retry"
        disables = ""
        if result.gone:
            disables = "the receiver answered 410 Gone"
        elif result.counts and (row["failing_s"] or 0.0) >= DISABLE_AFTER_S:
            disables = f"it has failed for {DISABLE_AFTER_S / 86_400:.0f} days: {result.answer}"

        jitter = self._clock.jitter(JITTER)
        return AttemptEnd(
            "pending" if again else "failed",
            result.answer,
            due_s=backoff_s(attempts, jitter),
            counts=result.counts,
            pause_s=pause_s(failures, jitter),
            disables=disables[:500],
        )
