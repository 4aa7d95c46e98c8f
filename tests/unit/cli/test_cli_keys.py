"""``moorage key`` against the server that plays the REST contract."""

import json
from datetime import timedelta

import pytest
from invoke import Run
from played import BORN
from played_keys import SECRET
from rest_manager import RestManager

from moorage.cli import times
from moorage.common.model.errors import InvalidInput


def test_a_key_is_made_listed_and_revoked(manager: RestManager, moorage: Run) -> None:
    made = moorage("keys", "create", "ci", "--user", "ann", "--project", "vision", "--expires", "30d")
    assert (made.stdout, made.exit_code) == (f"{SECRET}\n", 0), "the secret alone, for scripts"
    assert "only now" in made.stderr
    assert moorage("keys", "create", "root2", "--role", "admin", "-o", "name").stdout == f"{SECRET}\n"
    key = manager.keys["ci"]
    assert (key.user, key.project, key.role) == ("ann", "vision", "member")
    assert key.expires_at is not None
    shown = moorage("keys", "list").stdout
    for part in ("ci", SECRET[:8], "ann", "vision", "admin", "never"):
        assert part in shown
    assert SECRET not in shown
    assert moorage("keys", "list", "-o", "name").stdout == "ci\nroot2\n"
    assert [k["name"] for k in json.loads(moorage("keys", "list", "-o", "json").stdout)["keys"]] == [
        "ci",
        "root2",
    ]
    assert moorage("keys", "revoke", "ci").stdout == "ci\n"
    assert list(manager.keys) == ["root2"]
    assert json.loads(moorage("keys", "create", "x", "-o", "json").stdout)["secret"] == SECRET


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("create a --role user", "'admin' or 'member'"),
        ("create a --expires soon", "5m, 12h or 30d"),
        ("create a/", "a name has 1 to 128"),
        ("create root", "there is a key named 'root'"),
        ("revoke nobody", "no key named 'nobody'"),
    ],
)
def test_a_wrong_key_is_told(manager: RestManager, moorage: Run, words: str, told: str) -> None:
    moorage("keys", "create", "root")
    refused = moorage("keys", *words.split())
    assert refused.exit_code != 0
    assert told in refused.stderr
    assert list(manager.keys) == ["root"]


def test_a_key_that_has_expired_says_so(manager: RestManager, moorage: Run) -> None:
    moorage("keys", "create", "old", "--expires", "2001-01-01T00:00:00Z")
    assert "expired" in moorage("keys", "list").stdout


@pytest.mark.parametrize(
    ("text", "after"),
    [("5m", timedelta(minutes=5)), ("12h", timedelta(hours=12)), ("30d", timedelta(days=30))],
)
def test_future_is_a_duration_from_now_or_a_timestamp(text: str, after: timedelta) -> None:
    assert times.future(text, BORN, "--expires") == BORN + after
    assert times.future(BORN.isoformat(), BORN, "--expires") == BORN


@pytest.mark.parametrize("text", ["", "30", "30w", "-3d", "99999d", "2030-01-01T00:00:00", "1e3d"])
def test_future_refuses_other_text(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"--expires .* is not a time"):
        times.future(text, BORN, "--expires")
