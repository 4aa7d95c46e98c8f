"""A kernel's outcome, derived from its exit status and the agent's own actions."""

from __future__ import annotations

import pytest

from moorage.agent.kernel.outcome import TerminationCause, determine_outcome
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as S


@pytest.mark.parametrize(
    ("state", "code", "overrides", "expected"),
    [
        (S.EXITED, 0, {}, (S.EXITED, 0, Reason.EXIT_ZERO)),
        (S.EXITED, 3, {}, (S.EXITED, 3, Reason.EXIT_NONZERO)),
        (S.EXITED, -9, {}, (S.EXITED, -9, Reason.KILLED)),
        (S.EXITED, -15, {}, (S.EXITED, -15, Reason.KILLED)),
        (S.EXITED, -60, {}, (S.EXITED, -60, Reason.KILLED)),
        (S.EXITED, -9, {"oom": True}, (S.EXITED, -9, Reason.OOM)),
        (S.EXITED, 1, {"oom": True}, (S.EXITED, 1, Reason.OOM)),  # a child process was killed
        (S.EXITED, 0, {"oom": True}, (S.EXITED, 0, Reason.EXIT_ZERO)),  # and the kernel continued
        (S.EXITED, -11, {}, (S.EXITED, -11, Reason.EXIT_NONZERO)),
        (S.EXITED, 127, {"refused": True}, (S.EXITED, None, Reason.CREATE_FAILED)),
        (S.EXITED, None, {}, (S.EXITED, None, Reason.KILLED)),
        (S.GONE, None, {}, (S.GONE, None, Reason.KERNEL_GONE)),
        (S.EXITED, -15, {"cause": TerminationCause()}, (S.EXITED, -15, Reason.NONE)),
        (
            S.EXITED,
            0,
            {"cause": TerminationCause(Reason.START_TIMEOUT, "x")},
            (S.EXITED, 0, Reason.START_TIMEOUT),
        ),
        (
            S.GONE,
            None,
            {"cause": TerminationCause(Reason.AGENT_SHUTDOWN, "x")},
            (S.EXITED, None, Reason.AGENT_SHUTDOWN),
        ),
    ],
)
def test_determine_outcome(
    state: S, code: int | None, overrides: dict[str, object], expected: tuple[S, int | None, Reason]
) -> None:
    arguments = {"oom": False, "refused": False, "detail": "", "cause": None} | overrides
    outcome = determine_outcome(state, code, **arguments)  # type: ignore[arg-type]
    assert (outcome.state, outcome.exit_code, outcome.reason) == expected


def test_a_kill_is_told_with_what_the_runtime_knows_of_it() -> None:
    outcome = determine_outcome(
        S.EXITED, -15, oom=False, refused=False, detail="its job was cancelled", cause=None
    )
    assert outcome.detail == "killed by SIGTERM: its job was cancelled"
