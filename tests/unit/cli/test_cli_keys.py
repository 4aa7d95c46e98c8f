"""``moorage keys``."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from fake_manager import FakeManager
from invoke import Run
from scripted_session import CREATED_AT

from moorage.cli import times
from moorage.common.model.errors import InvalidInput


def test_create_list_and_revoke_a_key(manager: FakeManager, moorage: Run, tmp_path: Path) -> None:
    created = moorage(
        "keys", "create", "ci", "--user", "ann", "--project", "vision", "--expires", "30d"
    )
    assert created.exit_code == 0
    assert "only now" in created.stderr
    secret = created.stdout.removesuffix("\n")  # only the secret, for scripts
    key_file = tmp_path / "key"
    key_file.write_text(f"{secret}\n")
    assert moorage("ps", "--key-file", str(key_file)).exit_code == 0
    assert moorage("keys", "create", "root2", "--role", "admin", "-o", "name").stdout.startswith(
        "mg-"
    )
    key = manager.store.keys.views["ci"]
    assert (key.user, key.project, key.role) == ("ann", "vision", "member")
    assert key.expires_at is not None
    shown = moorage("keys", "list").stdout
    for part in ("ci", secret[:8], "ann", "vision", "admin", "never"):
        assert part in shown

    assert secret not in shown
    assert moorage("keys", "list", "-o", "name").stdout == "ada\nci\nroot\nroot2\n"
    listed = json.loads(moorage("keys", "list", "-o", "json").stdout)["keys"]
    assert [key["name"] for key in listed] == ["ada", "ci", "root", "root2"]
    assert moorage("keys", "revoke", "ci").stdout == "ci\n"
    assert sorted(manager.store.keys.views) == ["ada", "root", "root2"]
    assert moorage("ps", "--key-file", str(key_file)).exit_code == 4
    assert json.loads(moorage("keys", "create", "x", "-o", "json").stdout)["secret"].startswith(
        "mg-"
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("create a --role user", "'viewer', 'member'"),
        ("create a --expires soon", "5m, 12h or 30d"),
        ("create a/", "a name consists of 1 to 128"),
        ("create a --requests-per-minute many", "--requests-per-minute='many' is not a number"),
        ("create a --concurrent -1", "--concurrent='-1' is not a number"),
        ("create a --max-body 5", "--max-body='5'"),
        ("create a --max-body 0", "max_body_bytes"),
        ("create a --max-body many", "write a size such as 20MiB, or `none`"),
        ("create a --max-time long", "--max-time='long'"),
        ("create a --max-per-session gpu", "--max-per-session 'gpu' is not NAME=VALUE"),
        ("create a --max-per-session gpu=1", "unknown slot 'gpu'"),
        ("create root", "a key named 'root' already exists"),
        ("revoke nobody", "no key named 'nobody'"),
    ],
)
def test_keys_refuses_invalid_requests(
    manager: FakeManager, moorage: Run, args: str, message: str
) -> None:
    refused = moorage("keys", *args.split())
    assert refused.exit_code != 0
    assert message in refused.stderr
    assert sorted(manager.store.keys.views) == ["ada", "root"]


def test_limits_of_a_key(manager: FakeManager, moorage: Run) -> None:
    limits = ("--requests-per-minute", "60", "--tokens-per-minute", "9000", "--concurrent", "0")
    assert moorage("keys", "create", "ci", *limits, "--max-body", "20MiB").exit_code == 0

    def stored() -> tuple[int | None, ...]:
        key = manager.store.keys.views["ci"]
        rates = key.requests_per_minute, key.tokens_per_minute, key.concurrent_requests
        return *rates, key.max_body_bytes

    assert stored() == (60, 9000, 0, 20 << 20)
    assert (
        moorage("keys", "set", "ci", "--requests-per-minute", "none", "--concurrent", "4").exit_code
        == 0
    )
    assert stored() == (None, 9000, 4, 20 << 20), "other settings stay"
    assert moorage("keys", "set", "ci", "--max-body", "none").exit_code == 0
    assert stored() == (None, 9000, 4, None)


def test_limits_of_the_sessions_of_a_key(manager: FakeManager, moorage: Run) -> None:
    limits = ("--max-time", "8h", "--max-per-session", "cuda.device=1")
    more = ("--max-per-session", "mem=8GiB")
    assert moorage("keys", "create", "ci", *limits, *more).exit_code == 0

    def stored() -> tuple[float | None, object]:
        key = manager.store.keys.views["ci"]
        return key.max_time_s, key.max_per_session

    assert stored() == (28_800, {"cuda.device": "1", "mem": "8GiB"})
    assert moorage("keys", "set", "ci", "--max-time", "none").exit_code == 0
    assert stored() == (None, {"cuda.device": "1", "mem": "8GiB"}), "other settings stay"
    assert moorage("keys", "set", "ci", "--max-per-session", "none").exit_code == 0
    assert stored() == (None, None)


def test_list_marks_an_expired_key(manager: FakeManager, moorage: Run) -> None:
    root = manager.store.keys.views["root"]
    manager.store.keys.views["old"] = root.model_copy(
        update={"name": "old", "expires_at": CREATED_AT}
    )
    assert "expired" in moorage("keys", "list").stdout


@pytest.mark.parametrize(
    ("text", "after"),
    [("5m", timedelta(minutes=5)), ("12h", timedelta(hours=12)), ("30d", timedelta(days=30))],
)
def test_future_is_a_duration_from_now_or_a_timestamp(text: str, after: timedelta) -> None:
    assert times.future(text, CREATED_AT, "--expires") == CREATED_AT + after
    assert times.future(CREATED_AT.isoformat(), CREATED_AT, "--expires") == CREATED_AT


@pytest.mark.parametrize("text", ["", "30", "30w", "-3d", "99999d", "2030-01-01T00:00:00", "1e3d"])
def test_future_refuses_other_text(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"--expires .* is not a time"):
        times.future(text, CREATED_AT, "--expires")
