"""``moorage usage`` and ``moorage limits``."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from fake_manager import FakeManager
from invoke import Run

from moorage.common.model.spec import EndpointSpec, Probe
from moorage.common.views.metering import LimitUse, LimitView, ModelUsage

HOURS = ["GPU", "H", "CPU", "H", "GIB", "H", "NODE", "H"]
DAY = datetime(2026, 5, 4, tzinfo=UTC)


def test_usage_is_shown_by_what_it_is_split_by(manager: FakeManager, moorage: Run) -> None:
    assert "there is no usage" in moorage("usage").stderr
    amounts = {"requests": 3, "tokens_in": 40, "tokens_out": 500, "tokens_cached": 7}
    amounts |= {"gpu_ms": 5_400_000, "memory_mib_s": 2 * 1024 * 3600}
    manager.store.usage_records.items = [
        ModelUsage.model_validate(
            {"model": "tiny", "key_id": "id-1", "key": "ci", "at": DAY, **amounts}
        ),
        ModelUsage.model_validate({"model": "tiny", "key_id": "id-2", "at": DAY, **amounts}),
    ]
    result = moorage(
        "usage", "--by", "key,model", "--bucket", "day", "--from", "7d", "--project", "vision"
    )
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["DAY", "KEY", "MODEL", "REQUESTS", "TOKENS", "IN", "CACHED", "TOKENS", "OUT", *HOURS],
        ["2026-05-04", "ci", "tiny", "3", "40", "7", "500", "1.50", "0.00", "2.00", "0.00"],
        ["2026-05-04", "id-2", "tiny", "3", "40", "7", "500", "1.50", "0.00", "2.00", "0.00"],
    ]
    since, until, split = manager.store.usage_records.asked[-1]
    assert (split.by, split.bucket, split.project) == (["key", "model"], "day", "vision")
    assert until - since in (timedelta(days=7), timedelta(days=7, hours=1)), "full hours"
    assert (since.minute, until.minute) == (0, 0)
    shown = json.loads(moorage("usage", "-o", "json").stdout)["usage"]
    assert [one["key"] for one in shown] == ["ci", None]
    csv = moorage("usage", "--by", "key", "--bucket", "day", "--csv").stdout.splitlines()
    assert csv[0] == (
        "at,key_id,key,requests,tokens_in,tokens_out,tokens_cached,gpu_ms,cpu_ms,memory_mib_s,node_ms,cost"
    )
    assert csv[2] == "2026-05-04T00:00:00Z,id-2,,3,40,500,7,5400000,0,7372800,0,0"
    assert "only the first 1 lines" in moorage("usage", "-n", "1").stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("usage --by colour", "use project, user, key"),
        ("usage --bucket quarter", "use none, hour, day, week, month, year"),
        ("usage --from 1h --to 2d", "is not before"),
        ("limits set key ci", "no limit was given"),
        ("limits set key ci speed=3", "limits are requests, tokens, concurrent"),
        ("limits set key ci requests=-3", "write a number"),
        ("limits set group ci requests=3", "use one of: key, project, model"),
        ("limits set key nobody requests=3", "no key named 'nobody'"),
    ],
)
def test_refused_arguments(moorage: Run, args: str, message: str) -> None:
    refused = moorage(*args.split())
    assert refused.exit_code != 0
    assert message in refused.stderr


def test_limits_are_set_and_shown_with_their_use(manager: FakeManager, moorage: Run) -> None:
    assert "nothing is limited" in moorage("limits").stderr
    assert (
        moorage("limits", "set", "key", "ada", "requests=60", "tokens=1000").stdout == "key/ada\n"
    )
    assert moorage("limits", "set", "key", "ada", "tokens=none").exit_code == 0
    key = manager.store.keys.views["ada"]
    assert (key.requests_per_minute, key.tokens_per_minute) == (60, None)
    manager.add_endpoint(EndpointSpec(name="tiny", engine="custom", command=["x"], probe=Probe()))
    assert moorage("limits", "set", "model", "tiny", "concurrent=4", "requests=9").exit_code == 0
    assert moorage("limits", "set", "model", "tiny", "requests=none").exit_code == 0
    limits = manager.endpoints["tiny"].limits
    assert limits is not None
    assert (limits.concurrent_requests, limits.requests_per_minute) == (4, None)
    view = LimitView(
        scope="key", name="ada", project="p", requests_per_minute=LimitUse(limit=60, used=12)
    )
    manager.store.limit_shares.views = [view]
    assert moorage("limits").stdout.splitlines()[1].split() == ["key", "ada", "p", "12/60"]
    assert moorage("limits", "-o", "name").stdout == "key/ada\n"
    assert (
        json.loads(moorage("limits", "ls", "-o", "json").stdout)["limits"][0]["concurrent_requests"]
        is None
    )
