"""Faults in notifications: rights, the outbox, claims, and where webhooks go. A part of the
catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

STORE = "manager/store/notifications/sql"
NOTIFICATIONS = ("tests/store/test_notifications.py",)
MAIL = ("tests/store/test_mail.py",)
PURE = ("tests/unit/manager/test_notification_matching.py",)

MUTATIONS = (
    Mutation(
        "a subscription gets events of projects that its owner may not read",
        "manager/notifications/matching.py",
        "    return subscription.project == occurrence.project",
        "    return True",
        NOTIFICATIONS,
    ),
    Mutation(
        "a subscription of a former member is still sent",
        "manager/loops/notification_sender.py",
        'enabled = row["enabled"] and row["allowed"]',
        'enabled = row["enabled"]',
        NOTIFICATIONS,
    ),
    Mutation(
        "two managers send for one subscription",
        f"{STORE}/deliveries.sql",
        "AND (leased_until IS NULL OR leased_until <= now())",
        "AND true",
        NOTIFICATIONS,
    ),
    Mutation(
        "an event that comes during a run is not sent until the next one",
        f"{STORE}/deliveries.sql",
        "WHEN s.woken <> $3 THEN greatest(now(), s.retry_at)",
        "WHEN false THEN greatest(now(), s.retry_at)",
        NOTIFICATIONS,
    ),
    Mutation(
        "webhooks follow redirects",
        "manager/notifications/webhook.py",
        "allow_redirects=False",
        "allow_redirects=True",
        NOTIFICATIONS,
    ),
    Mutation(
        "a user sends mail to anyone",
        "manager/notifications/services.py",
        "if address.lower() != own_address.lower() and not mailer.allows(address):",
        "if False:",
        MAIL,
    ),
    Mutation(
        "a repeated mail has another Message-ID",
        f"{STORE}/deliveries_begin.sql",
        "mail_id = coalesce(d.mail_id, $5)",
        "mail_id = $5",
        MAIL,
    ),
    Mutation(
        "a name mentions everybody in a chat",
        "manager/notifications/bodies.py",
        '.replace("<", "&lt;")',
        "",
        PURE,
    ),
)
