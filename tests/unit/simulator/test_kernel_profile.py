"""Scripts drawn from a kernel profile, and the overrides in a session's env."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.agent.runtimes.simulated import KernelScript
from moorage.common.model.errors import InvalidInput
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import SessionType
from moorage.simulator.fleet import KernelProfile, Range, parse_range

EXACT = KernelProfile(start_s=Range(0.02, 0.02), run_s=Range(3, 3), stop_s=Range(0.01, 0.01))


def spec(type: SessionType = SessionType.BATCH, **env: str) -> KernelSpec:
    return KernelSpec(
        KernelId("k"),
        SessionId("s"),
        session_name="some-session",
        session_type=type,
        runtime="process",
        engine="custom",
        served_name="m",
        command=("x",),
        env=env,
    )


def draw(
    profile: KernelProfile = EXACT, kernel: KernelSpec | None = None, seed: int = 1
) -> KernelScript:
    return profile.draw(kernel or spec(), random.Random(seed))


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
def test_env_overrides_the_drawn_script(env: dict[str, str], expected: dict[str, Any]) -> None:
    script = draw(kernel=spec(**env))
    assert {name: getattr(script, name) for name in expected} == expected


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
def test_invalid_override_is_a_refusal_that_names_it(env: dict[str, str]) -> None:
    (name, value), *_ = env.items()
    refusal = draw(kernel=spec(**env)).refusal
    assert name in refusal
    assert repr(value) in refusal
    assert "must be" in refusal


def test_only_batch_kernels_exit_on_their_own() -> None:
    assert draw(kernel=spec(SessionType.INTERACTIVE)).run_s is None
    assert draw(kernel=spec(SessionType.INFERENCE)).run_s is None
    assert draw(kernel=spec(SessionType.INTERACTIVE, SIM_RUN_S="2")).run_s == 2
    assert draw(KernelProfile(run_s=None)).run_s is None


def test_probability_one_always_fails() -> None:
    assert draw(KernelProfile(fail_start=1)).refusal
    assert draw(KernelProfile(fail_run=1)).exit_code == 1
    assert draw(KernelProfile(fail_run=1, run_s=None)).run_s is not None, (
        "it crashes instead of running forever"
    )
    assert draw(KernelProfile(hang_stop=1)).stop_s is None
    assert draw(KernelProfile(fail_start=1), spec(SIM_FAIL_START="0")).refusal == ""
    assert draw(KernelProfile(fail_run=1), spec(SIM_RUN_S="1")).exit_code == 0


@given(
    st.integers(),
    st.dictionaries(st.sampled_from(["SIM_RUN_S", "SIM_START_MS", "SIM_EXIT"]), st.just("1")),
)
def test_override_leaves_other_kernels_unchanged(seed: int, env: dict[str, str]) -> None:
    profile = KernelProfile(fail_start=0.3, fail_run=0.3, hang_stop=0.3)
    plain = random.Random(seed)
    overridden = random.Random(seed)
    profile.draw(spec(), plain)
    profile.draw(spec(SessionType.INFERENCE, **env), overridden)
    assert profile.draw(spec(), plain) == profile.draw(spec(), overridden)


@given(st.integers(), st.floats(0, 1), st.floats(0, 10), st.floats(0, 10))
def test_drawn_times_stay_within_the_profile(seed: int, p: float, low: float, width: float) -> None:
    profile = KernelProfile(Range(low, low + width), Range(low, low + width), fail_start=p)
    script = draw(profile, seed=seed)
    assert low <= script.start_s <= low + width
    assert script.run_s is not None
    assert low <= script.run_s <= low + width


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5ms..50ms", (0.005, 0.05)),
        ("5ms", (0.005, 0.005)),
        ("0s..0s", (0, 0)),
        ("1.5ms..2ms", None),
    ],
)
def test_parse_range(text: str, expected: tuple[float, float] | None) -> None:
    found = parse_range(text, "--start-time")
    assert (found.low, found.high) == (expected or (0.0015, 0.002))


@pytest.mark.parametrize(
    "text", ["", "x", "5", "5s..", "..5s", "50s..5s", "-1s..3s", "nan", "1s..inf", "1s-5s"]
)
def test_parse_range_refuses_malformed_text(text: str) -> None:
    with pytest.raises(InvalidInput, match="--start-time"):
        parse_range(text, "--start-time")
