"""``moorage scheduler log`` and ``replay``: what is refused before any manager is asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from invoke import Run

from moorage.cli import times
from moorage.common.model.errors import InvalidInput
from moorage.common.model.group_options import GroupOptions, PreemptionOptions
from moorage.manager.scheduling import Policy
from moorage.manager.store.groups import options_of, policy_of
from moorage.server.commands import scheduler_replay

NOW = datetime(2026, 5, 4, 12, 30, tzinfo=UTC)
AWAY = {"MOORAGE_URL": "http://127.0.0.1:9"}  # whoever asks a manager is told that there is none


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("replay", "--policy", "fair"),
            ("'fair' is not known", "strict, skip, greedy, backfill, lifo, drf"),
        ),
        (("replay", "--policy", ","), ("',' is not known",)),
        (("replay", "--policy", "hols=skip"), ("there is no option 'hols'", "max_bypasses", "strategy")),
        (("replay", "--policy", "hol=sideways"), ("hol", "'strict', 'skip' or 'backfill'")),
        (("replay", "--policy", "max_bypasses=-1"), ("max_bypasses", "greater than or equal to 0")),
        (("replay", "--verify", "--policy", "strict"), ("--verify takes no --policy",)),
        (("log", "--last", "soon"), ("'soon' is not a duration", "10m")),
        (("log", "--last", "0s"), ("'0s' is not allowed",)),
        (("log", "--from", "yesterday"), ("--from 'yesterday' is not a time", "2026-05-04T13:00")),
        (("log", "--to", "25:00"), ("--to '25:00' is not a time",)),
        (("log", "--last", "5m", "--from", "10m"), ("--last excludes --from and --to",)),
        (("replay", "--from", "5m", "--to", "10m"), ("is not before --to",)),
        (("log", "--limit", "0"), ("--limit",)),
    ],
)
def test_what_is_wrong_is_said_before_anybody_is_asked(
    moorage: Run, words: tuple[str, ...], said: tuple[str, ...]
) -> None:
    result = moorage("scheduler", *words, **AWAY)
    assert result.exit_code == 2, result.stderr
    assert all(part in result.stderr for part in said), result.stderr
    assert moorage("scheduler", "log", **AWAY).exit_code == 1


def test_points_in_time() -> None:
    assert times.past("90s", NOW, "--from") == NOW - timedelta(seconds=90)
    assert times.past(" 1.5h", NOW, "--from") == NOW - timedelta(minutes=90)
    assert times.past("2026-05-04T10:00:01Z", NOW, "--from") == NOW.replace(hour=10, minute=0, second=1)
    assert times.past("2026-05-04T10:00+02:00", NOW, "--from") == NOW.replace(hour=8, minute=0)
    here = times.past("2026-05-04T10:00", NOW, "--from")
    assert here.replace(tzinfo=None) == datetime(2026, 5, 4, 10)
    assert here.utcoffset() == here.astimezone().utcoffset(), "of this machine"
    today = NOW.astimezone()
    assert times.past("10:15", NOW, "--from").replace(tzinfo=None) == datetime(
        today.year, today.month, today.day, 10, 15
    )
    for text in ("", "10", "2026", "-5m", "5 m", "99999999999d"):
        with pytest.raises(InvalidInput, match="--from"):
            times.past(text, NOW, "--from")


def test_a_policy_is_the_recorded_one_but_for_what_was_asked() -> None:
    recorded = Policy(
        strategy="lifo", hol="skip", num_retries_to_skip=4, weights={"ann": 3}, max_skip_age=None
    )
    found = scheduler_replay.asked_policies(
        ["strict, drf", "max_bypasses=7 weights.bob=2", "greedy"], recorded
    )
    assert list(found) == ["strict", "drf", "max_bypasses=7 weights.bob=2", "greedy"]
    assert found["strict"] == Policy("strict", 4, strategy="lifo", weights={"ann": 3}, max_skip_age=None)
    assert found["drf"].strategy == "drf"
    assert (found["drf"].hol, found["drf"].num_retries_to_skip) == ("skip", 4)
    changed = found["max_bypasses=7 weights.bob=2"]
    assert (changed.max_bypasses, changed.weights, changed.hol) == (7, {"ann": 3, "bob": 2}, "skip")
    assert (found["greedy"].max_bypasses, found["greedy"].max_skip_age) == (None, None)


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
def test_options_are_the_same_there_and_back(options: GroupOptions) -> None:
    assert options_of(policy_of(options)) == options
    assert policy_of(options_of(policy_of(options))) == policy_of(options)
