"""Rotation of the CA: the conditions for continuing, and the peers that it waits for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from moorage.common.link.identity import certificate_fingerprint, split_bundle
from moorage.manager.crypto.authority import CertificateAuthority
from moorage.manager.crypto.rotation import (
    SETTLE,
    PeerTrust,
    StoredAuthorities,
    find_waiting,
    may_go_on,
)

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
OLD, NEW = (CertificateAuthority.create("secret", NOW) for _ in range(2))
OLD_ID, NEW_ID = (certificate_fingerprint(made.certificate) for made in (OLD, NEW))

STEADY = StoredAuthorities(NEW, since=NOW)
DISTRIBUTING = StoredAuthorities(OLD, next=NEW, since=NOW)
REISSUING = StoredAuthorities(NEW, retiring=OLD.certificate, since=NOW)


def peer(name: str, trusts: set[str], issuer: str | None) -> PeerTrust:
    return PeerTrust("agent", name, frozenset(trusts), issuer)


FORMER_RELEASE = peer("former-release", set(), OLD_ID)
SILENT = peer("silent", set(), None)
UNAWARE = peer("unaware", {OLD_ID}, OLD_ID)
CONFIRMED = peer("confirmed", {OLD_ID, NEW_ID}, OLD_ID)
RENEWED = peer("renewed", {OLD_ID, NEW_ID}, NEW_ID)
ALL = [FORMER_RELEASE, SILENT, UNAWARE, CONFIRMED, RENEWED]


@pytest.mark.parametrize(
    ("stored", "state", "trusted", "waiting"),
    [
        (STEADY, "steady", (NEW_ID,), []),
        (DISTRIBUTING, "distributing", (OLD_ID, NEW_ID), [FORMER_RELEASE, SILENT, UNAWARE]),
        (REISSUING, "reissuing", (NEW_ID, OLD_ID), [FORMER_RELEASE, SILENT, UNAWARE, CONFIRMED]),
    ],
)
def test_states(
    stored: StoredAuthorities, state: str, trusted: tuple[str, ...], waiting: list[PeerTrust]
) -> None:
    assert stored.state == state
    assert tuple(map(certificate_fingerprint, stored.trusted)) == trusted
    assert find_waiting(stored, ALL) == waiting


@pytest.mark.parametrize(
    ("stored", "peers", "after", "goes_on"),
    [
        (STEADY, [], 2 * SETTLE, False),
        (DISTRIBUTING, [], SETTLE, True),
        (DISTRIBUTING, [CONFIRMED, RENEWED], SETTLE, True),
        (DISTRIBUTING, [CONFIRMED], SETTLE - timedelta(seconds=1), False),
        (DISTRIBUTING, [CONFIRMED, UNAWARE], timedelta(days=30), False),
        (DISTRIBUTING, [CONFIRMED, FORMER_RELEASE], timedelta(days=30), False),
        (REISSUING, [RENEWED], SETTLE, True),
        (REISSUING, [RENEWED], timedelta(0), False),
        (REISSUING, [RENEWED, CONFIRMED], timedelta(days=30), False),
        (REISSUING, [RENEWED, SILENT], timedelta(days=30), False),
    ],
)
def test_it_goes_on_when_nobody_would_be_left_behind(
    stored: StoredAuthorities, peers: list[PeerTrust], after: timedelta, goes_on: bool
) -> None:
    assert may_go_on(stored, peers, NOW + after) is goes_on


def test_fingerprints_of_a_bundle_are_those_of_its_certificates() -> None:
    authority = CertificateAuthority(OLD, "secret")
    assert authority.fingerprint.hex() == OLD_ID
    assert split_bundle(OLD.certificate + NEW.certificate) == [OLD.certificate, NEW.certificate]
    assert split_bundle("") == []
