"""Notifications by mail, to a real mail server: TLS, login, refusals, and a server that hangs."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from moorage.common.config.settings import ManagerSettings
from moorage.common.model.errors import ConfigError, InvalidInput
from moorage.common.views.subscriptions import SubscriptionSpec
from moorage.manager.notifications import mail
from moorage.manager.notifications.mail import Mailer
from moorage.manager.notifications.services import NotificationServices
from moorage.manager.secrets.keyring import Keyring
from moorage.manager.store import Store
from tests.certificates import certificate_of
from tests.clocks import StoreClock
from tests.receivers import Mailbox, mail_server

from .conftest import FakeAgent, open_store
from .notification_harness import Notifications, make_people, of, run_session, services, subscribe

ANN = of("ann")
SENDER = {"smtp_host": "localhost", "smtp_sender": "Moorage <moorage@lab.test>"}


@pytest_asyncio.fixture
async def store(migrated_database: str, clock: StoreClock, tmp_path: Path) -> AsyncIterator[Store]:
    keyring = Keyring(tmp_path / "keys", clock)
    async with open_store(migrated_database, clock, keyring=keyring) as made:
        await make_people(made)
        yield made


@pytest_asyncio.fixture
async def mailbox() -> AsyncIterator[Mailbox]:
    async with mail_server() as made:
        yield made


def plain(mailbox: Mailbox) -> dict[str, Any]:
    return SENDER | {"smtp_port": mailbox.port, "smtp_security": "none"}


async def queued(store: Store, notifications: Notifications, names: tuple[str, ...]) -> str:
    """Ann's subscription by mail with the ends of these sessions. Returns its id."""
    made = await subscribe(store, ANN, "me", "", channel="mail")
    agent = FakeAgent(store)
    for name in names:
        await run_session(store, agent, ANN, name)
    await notifications.assign()
    return made.id


async def test_events_at_the_same_time_share_a_mail_to_the_users_address(
    store: Store, mailbox: Mailbox, clock: StoreClock
) -> None:
    notifications = Notifications(store, services(clock, **plain(mailbox)))
    await queued(store, notifications, ("one", "two"))
    await notifications.send()
    await notifications.send()
    [sent] = mailbox.mails
    assert mailbox.to == [["ann@example.com"]]
    assert sent["From"] == "Moorage <moorage@lab.test>"
    assert sent["Subject"] == (
        "[Moorage] Session one of project vision has ended: "
        "the main program exited with code 0 (and 1 more)"
    )
    assert "Session two of project vision has ended" in sent.get_content()
    assert sent["Message-ID"].endswith("@lab.test>")
    rows = await store.database.fetch("SELECT state, attempts FROM deliveries")
    assert [tuple(row.values()) for row in rows] == [("delivered", 1)] * 2


@pytest.mark.parametrize(
    ("answer", "state"), [("550 no such user", "failed"), ("450 try later", "pending")]
)
async def test_a_refusal_is_recorded(
    store: Store, mailbox: Mailbox, clock: StoreClock, answer: str, state: str
) -> None:
    mailbox.refuses = answer
    notifications = Notifications(store, services(clock, **plain(mailbox)))
    subscription = await queued(store, notifications, ("one",))
    await notifications.send()
    [row] = await store.database.fetch("SELECT state, answer FROM deliveries")
    assert (row["state"], row["answer"]) == (state, answer)
    assert (await store.subscriptions.get(ANN, subscription)).state == "failing"


async def test_a_repeated_mail_has_the_same_message_id(
    store: Store, mailbox: Mailbox, clock: StoreClock
) -> None:
    """A manager dies after the mail server has accepted it, and another event comes before the
    next attempt."""
    notifications = Notifications(store, services(clock, **plain(mailbox)))
    await queued(store, notifications, ("one",))
    await notifications.send()
    await store.database.fetch(
        "UPDATE deliveries SET state = 'pending', ended_at = NULL, due_at = now()"
    )
    await run_session(store, FakeAgent(store), ANN, "two")
    await notifications.assign()
    for _ in range(2):
        await store.database.fetch("UPDATE subscriptions SET retry_at = NULL, next_at = now()")
        await store.database.fetch("UPDATE subscriptions SET queued = 5")
        await notifications.send()

    first, repeated, other = mailbox.mails
    assert first["Message-ID"] == repeated["Message-ID"] != other["Message-ID"]
    assert "Session two" in other.get_content()


async def test_a_server_that_hangs_delays_nothing_else(
    store: Store, mailbox: Mailbox, clock: StoreClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail, "TIMEOUT_S", 0.5)
    mailbox.hangs = True
    notifications = Notifications(store, services(clock, **plain(mailbox)))
    subscription = await queued(store, notifications, ("one",))
    began_at = time.monotonic()
    async with asyncio.timeout(20):
        await notifications.send()
    assert time.monotonic() - began_at < 10
    view = await store.subscriptions.get(ANN, subscription)
    assert (view.queued, view.enabled) == (1, True)
    assert "mail server" in view.reason


async def test_a_mail_server_that_is_down_disables_nobody(store: Store, clock: StoreClock) -> None:
    down = SENDER | {"smtp_port": 1, "smtp_security": "none"}
    notifications = Notifications(store, services(clock, **down))
    subscription = await queued(store, notifications, ("one",))
    await notifications.send()
    [row] = await store.database.fetch("SELECT failing_since FROM subscriptions")
    assert row["failing_since"] is None
    assert (await store.subscriptions.get(ANN, subscription)).enabled


@pytest.mark.parametrize("direct", [False, True])
async def test_tls_and_login(clock: StoreClock, tmp_path: Path, direct: bool) -> None:
    certificate, key = certificate_of(tmp_path, "localhost")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    async with mail_server(context, direct=direct) as mailbox:
        settings = SENDER | {
            "smtp_port": mailbox.port,
            "smtp_security": "tls" if direct else "starttls",
            "smtp_ca": certificate,
        }
        if not direct:
            settings |= {"smtp_user": "moorage", "smtp_password": "correct"}

        sent = await _send(clock, settings)
        assert sent.succeeded, sent.answer
        assert mailbox.encrypted == [True]
        if not direct:
            wrong = await _send(clock, settings | {"smtp_password": "wrong"})
            assert not wrong.succeeded
            assert not wrong.counts
        untrusted = await _send(clock, settings | {"smtp_ca": None})
        assert "CERTIFICATE_VERIFY_FAILED" in untrusted.answer
        assert len(mailbox.mails) == 1


async def test_a_server_without_starttls_gets_no_mail(clock: StoreClock, mailbox: Mailbox) -> None:
    settings = SENDER | {"smtp_port": mailbox.port, "smtp_security": "starttls"}
    assert not (await _send(clock, settings)).succeeded
    assert mailbox.mails == []


async def _send(clock: StoreClock, settings: dict[str, Any]) -> Any:
    mailer = Mailer(ManagerSettings.model_validate(settings), clock)
    try:
        return await mailer.send("ann@example.com", clock.new_id(), ["It works."])
    finally:
        mailer.close()


@pytest.mark.parametrize(
    ("target", "domains", "why"),
    [
        ("", (), ""),
        ("ANN@example.com", (), ""),
        ("bob@example.com", (), "not your own address"),
        ("bob@example.com", ("example.com",), ""),
        ("bob@other.test", ("example.com",), "not your own address"),
        ("bob@other.test", ("*",), ""),
        ("no address", ("*",), "not an e-mail address"),
        ("a@b.test,c@d.test", ("*",), "not an e-mail address"),
        ("a@b.test\nBcc: c@d.test", ("*",), "not an e-mail address"),
    ],
)
async def test_to_whom_a_user_may_send(
    clock: StoreClock, target: str, domains: tuple[str, ...], why: str
) -> None:
    settings = ManagerSettings.model_validate(SENDER | {"mail_domains": domains})
    checks = NotificationServices(None, Mailer(settings, clock))
    spec = SubscriptionSpec(name="me", channel="mail", target=target)
    if not why:
        await checks.check(spec, "ann@example.com")
        return

    with pytest.raises(InvalidInput, match=why) as refused:
        await checks.check(spec, "ann@example.com")
    assert refused.value.field == "target"


async def test_without_a_mail_server_or_an_address_there_is_no_mail(clock: StoreClock) -> None:
    spec = SubscriptionSpec(name="me", channel="mail")
    none = NotificationServices(None, Mailer(ManagerSettings(), clock))
    with pytest.raises(InvalidInput, match="no mail server"):
        await none.check(spec, "ann@example.com")
    some = NotificationServices(None, Mailer(ManagerSettings.model_validate(SENDER), clock))
    with pytest.raises(InvalidInput, match="no e-mail address"):
        await some.check(spec, "")


def test_settings_that_contradict_each_other(clock: StoreClock) -> None:
    for settings in ({"smtp_host": "a"}, SENDER | {"smtp_user": "a", "smtp_security": "none"}):
        with pytest.raises(ConfigError):
            Mailer(ManagerSettings.model_validate(settings), clock)
