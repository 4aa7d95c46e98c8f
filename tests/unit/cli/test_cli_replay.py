"""``moorage scheduler log`` and ``replay``: option checks that need no manager."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from invoke import Run

from moorage.cli import times
from moorage.common.model.errors import InvalidInput
from moorage.common.model.group_options import GroupOptions, PreemptionOptions
from moorage.manager.scheduling import Policy
from moorage.manager.store.groups.repository import options_of, policy_of
from moorage.server.commands.scheduler.replay import parse_policies
from moorage.server.commands.scheduler.what_if import parse_changes
from moorage.simulator.scheduler.what_if import QuotaChange

NOW = datetime(2026, 5, day=4, hour=12, minute=30, tzinfo=UTC)
NO_MANAGER = {"MOORAGE_URL": "http://127.0.0.1:9"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("replay", "--policy", "fair"),
            ("unknown --policy 'fair'", "strict, skip, greedy, backfill, lifo, drf"),
        ),
        (("replay", "--policy", ","), ("unknown --policy ','",)),
        (
            ("replay", "--policy", "hols=skip"),
            ("there is no option 'hols'", "max_bypasses", "strategy"),
        ),
        (("replay", "--policy", "hol=sideways"), ("hol", "'strict', 'skip' or 'backfill'")),
        (("replay", "--policy", "max_bypasses=-1"), ("max_bypasses", "greater than or equal to 0")),
        (
            ("replay", "--verify", "--policy", "strict"),
            ("--verify cannot be combined with --policy",),
        ),
        (
            ("replay", "--verify", "--add-agents", "2"),
            ("--verify cannot be combined with --policy",),
        ),
        (("replay", "--like", "a"), ("--like needs --add-agents or --add-gpus",)),
        (
            ("replay", "--quota", "user ann"),
            ("is not SCOPE NAME LIMIT=AMOUNT", "user ann cuda.device=8"),
        ),
        (("replay", "--quota", "team ann cpu=2"), ("scopes: user, project, group",)),
        (("replay", "--quota", "user ann cpu"), ("--quota 'cpu' is not NAME=VALUE",)),
        (("replay", "--quota", "user ann cpu=-1"), ("cpu = '-1' is not allowed",)),
        (("replay", "--quota", "user ann sessions=few"), ("sessions=few is not a number",)),
        (("replay", "--quota", "user ann pending=3"), ("pending=… has no effect",)),
        (("log", "--last", "soon"), ("'soon' is not a duration", "10m")),
        (("log", "--last", "0s"), ("'0s' is not allowed",)),
        (("log", "--from", "yesterday"), ("--from 'yesterday' is not a time", "2026-05-04T13:00")),
        (("log", "--to", "25:00"), ("--to '25:00' is not a time",)),
        (
            ("log", "--last", "5m", "--from", "10m"),
            ("--last cannot be combined with --from and --to",),
        ),
        (("replay", "--from", "5m", "--to", "10m"), ("is not before --to",)),
        (("log", "--limit", "0"), ("--limit",)),
    ],
)
def test_invalid_options_are_refused_without_a_manager(
    moorage: Run, arguments: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    result = moorage("scheduler", *arguments, **NO_MANAGER)
    assert result.exit_code == 2, result.stderr
    assert all(part in result.stderr for part in expected), result.stderr
    assert moorage("scheduler", "log", **NO_MANAGER).exit_code == 1


def test_times_on_the_command_line() -> None:
    assert times.past("90s", NOW, "--from") == NOW - timedelta(seconds=90)
    assert times.past(" 1.5h", NOW, "--from") == NOW - timedelta(minutes=90)
    assert times.past("2026-05-04T10:00:01Z", NOW, "--from") == NOW.replace(
        hour=10, minute=0, second=1
    )
    assert times.past("2026-05-04T10:00+02:00", NOW, "--from") == NOW.replace(hour=8, minute=0)
    local = times.past("2026-05-04T10:00", NOW, "--from")
    assert local.replace(tzinfo=None) == datetime(2026, 5, 4, 10)
    assert local.utcoffset() == local.astimezone().utcoffset(), "local time"
    today = NOW.astimezone()
    assert times.past("10:15", NOW, "--from").replace(tzinfo=None) == datetime(
        today.year, today.month, day=today.day, hour=10, minute=15
    )
    for text in ("", "10", "2026", "-5m", "5 m", "99999999999d"):
        with pytest.raises(InvalidInput, match="--from"):
            times.past(text, NOW, "--from")


def test_policy_options_change_only_what_they_name() -> None:
    recorded = Policy(
        strategy="lifo", hol="skip", num_retries_to_skip=4, weights={"ann": 3}, max_skip_age=None
    )
    policies = parse_policies(["strict, drf", "max_bypasses=7 weights.bob=2", "greedy"], recorded)
    assert list(policies) == ["strict", "drf", "max_bypasses=7 weights.bob=2", "greedy"]
    assert policies["strict"] == Policy(
        "strict", 4, strategy="lifo", weights={"ann": 3}, max_skip_age=None
    )
    assert policies["drf"].strategy == "drf"
    assert (policies["drf"].hol, policies["drf"].num_retries_to_skip) == ("skip", 4)
    changed = policies["max_bypasses=7 weights.bob=2"]
    assert (changed.max_bypasses, changed.weights, changed.hol) == (7, {"ann": 3, "bob": 2}, "skip")
    assert (policies["greedy"].max_bypasses, policies["greedy"].max_skip_age) == (None, None)


@pytest.mark.parametrize(
    "options",
    [
        GroupOptions(),
        GroupOptions(
            strategy="drf", hol="skip", num_retries_to_skip=3, max_bypasses=None, max_skip_age_s=1.5,
            agent_selection="custom:mine", replicas="pack", fraction="even", share_by="project",
            weights={"p": 2}, session_types=["batch", "inference"], slot_priority=["mem", "cpu"],
            exclusive=[["cuda", "rocm"]],
            preemption=PreemptionOptions(how="end", order="oldest", min_runtime_s=2.5),
        ),
        GroupOptions(max_skip_age_s=None, preemption=PreemptionOptions()),
    ],
)  # fmt: skip
def test_options_and_policy_convert_both_ways(options: GroupOptions) -> None:
    assert options_of(policy_of(options)) == options
    assert policy_of(options_of(policy_of(options))) == policy_of(options)


def test_quota_changes_name_the_limits_that_change() -> None:
    changes = parse_changes(
        0, 0, None, ["user ann cuda.device=8 sessions=none", "group g mem=1GiB cpu=none sessions=3"]
    )
    assert changes.quotas == (
        QuotaChange("user", "ann", {"cuda.device": 8}, None, changes_sessions=True),
        QuotaChange("group", "g", {"mem": 1 << 30, "cpu": None}, 3, changes_sessions=True),
    )
    assert changes
    assert not parse_changes(0, 0, None, [])
