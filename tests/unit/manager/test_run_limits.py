"""Limits of resource groups, keys and templates on one session: pure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from moorage.common.model.run_limits import GroupLimits
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import SessionType
from moorage.common.model.templates import TemplateSpec
from moorage.manager.workloads.run_limits import (
    RunLimits,
    find_excess,
    of_group,
    of_key,
    of_template,
    with_time_limit,
)

TIMES = st.one_of(st.none(), st.integers(1, 100))
KINDS = st.sampled_from(["batch", "interactive", "inference", "system"])
SLOTS = st.dictionaries(
    st.sampled_from(["cpu", "mem", "cuda.device"]), st.integers(0, 8), max_size=3
)


def session(kind: str = "batch", **more: Any) -> SessionSpec:
    base: dict[str, Any] = {"type": kind, "command": ["x"], "resources": {"cpu": 1}}
    return SessionSpec.model_validate(base | ({"probe": {}} if kind == "inference" else {}) | more)


def of(spec: SessionSpec, **limits: Any) -> RunLimits:
    return of_group("g", GroupLimits.model_validate(limits), spec.type)


def in_units(slots: dict[str, int]) -> dict[str, Any]:
    return {slot: f"{n}GiB" if slot == "mem" else n for slot, n in slots.items()}


@given(KINDS, TIMES, TIMES, st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=3))
def test_a_session_gets_a_time_limit_that_no_limit_refuses(
    kind: str, timeout: int | None, lifetime: int | None, times: list[tuple[int | None, int | None]]
) -> None:
    given_times: dict[str, Any] = {"timeout_s": timeout} if kind == "batch" else {}
    given_times |= {"max_lifetime_s": lifetime} if kind != "system" else {}
    spec = session(kind, **given_times)
    limits = [RunLimits(str(n), *pair) for n, pair in enumerate(times)]
    made = with_time_limit(spec, limits)

    asked = [t for t in given_times.values() if t is not None]
    longest = [most for most, _ in times if most is not None]
    if kind in ("inference", "system"):
        assert made == spec
        assert find_excess(made, limits) is None, "they have no time limit"
    elif asked:
        assert made == spec, "what the user asks for stays"
        assert (find_excess(made, limits) is not None) == any(min(asked) > t for t in longest)
    else:
        assert find_excess(made, limits) is None
        defaults = [default for _, default in times if default is not None][:1]
        set_to = made.timeout_s if kind == "batch" else made.max_lifetime_s
        assert set_to == min(defaults + longest, default=None)


@given(KINDS, SLOTS, SLOTS, SLOTS, st.integers(1, 3))
def test_a_request_is_refused_just_if_one_slot_exceeds_a_limit(
    kind: str, asked: dict[str, int], most: dict[str, int], per_user: dict[str, int], size: int
) -> None:
    if kind == "system":
        asked.pop("cuda.device", None)
    cluster = {"cluster": {"size": size}} if size > 1 and kind in ("batch", "interactive") else {}
    spec = session(kind, resources=in_units(asked), **cluster)
    limits = [of(spec, max_per_session=in_units(most), max_per_user=in_units(per_user))]
    exceeded = any(
        asked.get(slot, 0) * spec.size > amount
        for one in (most, per_user)
        for slot, amount in one.items()
    )
    assert (find_excess(spec, limits) is not None) == (exceeded and kind != "system")


@given(KINDS, SLOTS, TIMES, TIMES)
def test_without_limits_nothing_changes(
    kind: str, asked: dict[str, int], timeout: int | None, lifetime: int | None
) -> None:
    if kind == "system":
        asked.pop("cuda.device", None)
    spec = session(kind, resources=in_units(asked))
    limits = [of(spec), of_key("k", None, {}), of_template("t@1", TemplateSpec())]
    assert with_time_limit(spec, limits) == spec
    assert find_excess(spec, limits) is None


@pytest.mark.parametrize(
    ("spec", "limits", "expected"),
    [
        (
            session(timeout_s=7200),
            {"max_batch_time_s": 3600},
            "timeout_s = 7200 is above 3600, the time limit of resource_group 'g'",
        ),
        (
            session(timeout_s=7200, max_lifetime_s=5000),
            {"max_batch_time_s": 3600},
            "max_lifetime_s = 5000 is above 3600",
        ),
        (
            session("interactive", max_lifetime_s=7200),
            {"max_interactive_time_s": 3600, "max_batch_time_s": 1},
            "max_lifetime_s = 7200 is above 3600",
        ),
        (
            session(resources={"cuda.device": 8}),
            {"max_per_session": {"cuda.device": 4}},
            "resources.cuda.device = 8 is above 4, the `max_per_session` of resource_group 'g'",
        ),
        (
            session(resources={"cuda.shares": 0.5}),
            {"max_per_user": {"cuda.device": 0}},
            "resources.cuda.shares = 0.5 is above 0, the `max_per_user`",
        ),
        (
            session(resources={"mem": "8GiB"}, cluster={"size": 3}),
            {"max_per_session": {"mem": "16GiB"}},
            "resources.mem = 24GiB is above 16GiB",
        ),
        (
            session(cluster={"size": 3, "sub": {"resources": {"cpu": 4}}}),
            {"max_per_session": {"cpu": 8}},
            "resources.cpu = 9 is above 8",
        ),
    ],
)
def test_the_error_names_the_field_the_value_and_the_limit(
    spec: SessionSpec, limits: dict[str, Any], expected: str
) -> None:
    error = find_excess(spec, [of(spec, **limits)])
    assert error is not None
    assert expected in error.message
    [shown] = error.errors
    assert f"{shown['field']} = {shown['found']} is above {shown['allowed']}" in error.message


def test_a_default_above_the_longest_time_is_refused() -> None:
    for kind in ("batch", "interactive"):
        given_limits = {f"max_{kind}_time_s": 60, f"default_{kind}_time_s": 61}
        with pytest.raises(ValidationError, match=f"`default_{kind}_time_s` is 61, which is above"):
            GroupLimits.model_validate(given_limits)
        GroupLimits.model_validate(given_limits | {f"max_{kind}_time_s": 61})


def test_the_walltime_of_a_job_is_a_time_limit() -> None:
    spec = session(walltime_s=7200)
    limits = of(spec, max_batch_time_s=3600, default_batch_time_s=60)
    assert with_time_limit(spec, [limits]) == spec
    error = find_excess(spec, [limits])
    assert error is not None
    assert error.message.startswith("walltime_s = 7200")


def test_every_type_is_considered() -> None:
    assert {kind.value for kind in SessionType} == {"batch", "interactive", "inference", "system"}
