"""What becomes of played kernels: the script, the hints of a session, and the dice."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.model.errors import InvalidInput
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import SessionType
from moorage.simulator.fleet import Range, Script, parse_range
from moorage.simulator.fleet.script import Fate, fate

EXACT = Script(start_s=Range(0.02, 0.02), run_s=Range(3, 3), stop_s=Range(0.01, 0.01))


def spec(type: SessionType = SessionType.BATCH, **env: str) -> KernelSpec:
    return KernelSpec(
        KernelId("k"), SessionId("s"), "some-session", type, "process", "custom", "m", command=("x",), env=env
    )


def thrown(script: Script = EXACT, kernel: KernelSpec | None = None, seed: int = 1) -> Fate:
    return fate(script, kernel or spec(), random.Random(seed))


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, {"start_s": 0.02, "run_s": 3, "exit_code": 0, "stop_s": 0.01, "refusal": ""}),
        ({"SIM_START_MS": "250"}, {"start_s": 0.25, "run_s": 3}),
        ({"SIM_RUN_S": "0.5"}, {"run_s": 0.5, "exit_code": 0}),
        ({"SIM_RUN_S": "forever"}, {"run_s": None}),
        ({"SIM_EXIT": "7"}, {"exit_code": 7, "run_s": 3}),
        ({"SIM_EXIT": "-11"}, {"exit_code": -11}),
        ({"SIM_STOP_MS": "1500"}, {"stop_s": 1.5}),
        ({"SIM_FAIL_START": "1"}, {"refusal": "SIM_FAIL_START is set"}),
        ({"PATH": "/bin"}, {"run_s": 3}),
    ],
)
def test_a_session_says_what_its_kernels_do(env: dict[str, str], expected: dict[str, Any]) -> None:
    found = thrown(kernel=spec(**env))
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    "env",
    [
        {"SIM_START_MS": "soon"},
        {"SIM_RUN_S": "-1"},
        {"SIM_RUN_S": "nan"},
        {"SIM_EXIT": "1.5"},
        {"SIM_EXIT": "256"},
        {"SIM_STOP_MS": ""},
        {"SIM_FAIL_START": "yes"},
    ],
)
def test_a_hint_that_is_not_understood_fails_the_start_by_name(env: dict[str, str]) -> None:
    (name, value), *_ = env.items()
    refusal = thrown(kernel=spec(**env)).refusal
    assert name in refusal
    assert repr(value) in refusal
    assert "allowed" in refusal


def test_only_batch_kernels_end_by_themselves() -> None:
    assert thrown(kernel=spec(SessionType.INTERACTIVE)).run_s is None
    assert thrown(kernel=spec(SessionType.INFERENCE)).run_s is None
    assert thrown(kernel=spec(SessionType.INTERACTIVE, SIM_RUN_S="2")).run_s == 2
    assert thrown(Script(run_s=None)).run_s is None


def test_what_always_fails_fails() -> None:
    assert thrown(Script(fail_start=1)).refusal
    assert thrown(Script(fail_run=1)).exit_code == 1
    assert thrown(Script(fail_run=1, run_s=None)).run_s is not None, "it crashes instead of running for ever"
    assert thrown(Script(hang_stop=1)).stop_s is None
    assert thrown(Script(fail_start=1), spec(SIM_FAIL_START="0")).refusal == ""
    assert thrown(Script(fail_run=1), spec(SIM_RUN_S="1")).exit_code == 0


@given(
    st.integers(), st.dictionaries(st.sampled_from(["SIM_RUN_S", "SIM_START_MS", "SIM_EXIT"]), st.just("1"))
)
def test_a_hint_changes_nobody_elses_fate(seed: int, env: dict[str, str]) -> None:
    script = Script(fail_start=0.3, fail_run=0.3, hang_stop=0.3)
    plain, hinted = random.Random(seed), random.Random(seed)
    fate(script, spec(), plain)
    fate(script, spec(SessionType.INFERENCE, **env), hinted)
    assert fate(script, spec(), plain) == fate(script, spec(), hinted)


@given(st.integers(), st.floats(0, 1), st.floats(0, 10), st.floats(0, 10))
def test_fates_stay_within_the_script(seed: int, p: float, low: float, more: float) -> None:
    script = Script(Range(low, low + more), Range(low, low + more), fail_start=p)
    found = thrown(script, seed=seed)
    assert low <= found.start_s <= low + more
    assert found.run_s is not None
    assert low <= found.run_s <= low + more


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5..50", (0.005, 0.05)), ("5", (0.005, 0.005)), ("0..0", (0, 0)), ("1.5..2", None)],
)
def test_ranges(text: str, expected: tuple[float, float] | None) -> None:
    found = parse_range(text, 0.001, "--start-ms")
    assert (found.low, found.high) == (expected or (0.0015, 0.002))


@pytest.mark.parametrize("text", ["", "x", "5..", "..5", "50..5", "-1..3", "nan", "inf", "1..inf", "1-5"])
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(InvalidInput, match="--start-ms"):
        parse_range(text, 0.001, "--start-ms")
