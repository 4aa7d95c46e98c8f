"""Pure parts of notifications: name patterns, signatures, retries, and texts."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from moorage.common.model.errors import InvalidInput
from moorage.common.model.subscriptions import NotificationEvent, parse_events
from moorage.manager.notifications import bodies, signing
from moorage.manager.notifications.attempts import MAX_AGE_S, MAX_ATTEMPTS, backoff_s, verdict
from moorage.manager.notifications.matching import glob_matches

SECRET = signing.make_secret(bytes(range(32)))
OTHER = signing.make_secret(bytes(32))


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=8))
def test_patterns_mean_what_they_mean_in_a_shell(pattern: str, text: str) -> None:
    assert glob_matches(pattern, text) == fnmatchcase(text, pattern)


def test_no_pattern_takes_long() -> None:
    began_at = time.monotonic()
    assert not glob_matches("a*" * 63 + "c", "a" * 128)
    assert time.monotonic() - began_at < 1


def test_signatures_are_those_of_the_public_library() -> None:
    body = json.dumps({"type": "session.ended"}).encode()
    now = int(datetime.now(UTC).timestamp())
    headers = signing.headers([SECRET, OTHER], "id-1", now, body)
    for secret in (SECRET, OTHER):
        Webhook(secret).verify(body, headers)
    for changed in (
        headers | {"webhook-id": "id-2"},
        headers | {"webhook-timestamp": str(now - 1)},
    ):
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(body, changed)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(body + b" ", headers)
    assert "webhook-signature" not in signing.headers([], "id-1", now, body)


@given(st.integers(1, 1000), st.floats(0.8, 1.2))
def test_pauses_grow_and_are_bounded(failures: int, jitter: float) -> None:
    assert 4 <= backoff_s(failures, jitter) <= 6 * 3600 * 1.2
    assert backoff_s(failures, 1.0) <= backoff_s(failures + 1, 1.0)


def test_attempts_end() -> None:
    assert verdict(1, 0) == verdict(MAX_ATTEMPTS - 1, MAX_AGE_S - 1) == "retry"
    assert verdict(MAX_ATTEMPTS, 0) == verdict(1, MAX_AGE_S) == "give-up"


def test_short_names_of_events() -> None:
    assert parse_events(["end", "fail", "session.ended"]) == (
        NotificationEvent.SESSION_ENDED,
        NotificationEvent.SESSION_FAILED,
    )
    with pytest.raises(InvalidInput, match="'nothing' is not an event"):
        parse_events(["nothing"])
    with pytest.raises(InvalidInput):
        parse_events(["test"])


def test_chats_get_text_in_which_names_mention_nobody() -> None:
    text = bodies.line(
        "session.failed", {"kind": "session", "name": "<!channel>\nx", "exit_code": 3}
    )
    assert text == "Session <!channel> x has failed: exit code 3."
    assert b"&lt;!channel&gt;" in bodies.chat_body("slack", text)
    assert json.loads(bodies.chat_body("discord", text))["allowed_mentions"] == {"parse": []}
