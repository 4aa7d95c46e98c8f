"""Interpretation of the facts about a HEAppE job: a table of cases, and outcomes that must never
happen."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.agent.runtimes.heappe.interpretation import (
    CANCEL_AGAIN_S,
    DOUBT_S,
    LAG_S,
    PROBE_S,
    SERVING_DOUBT_S,
    STALE_S,
    UNSUBMITTED_S,
    Facts,
    Interpretation,
    cancel_due,
    interpret,
)
from moorage.agent.runtimes.heappe.wire import JobState as J
from moorage.common.model.status import ObservedState as S

NOW = 1_800_000_000.0
WALLTIME = 7200.0
_BASE = Facts(now=NOW, walltime_s=WALLTIME, seen_at=NOW - 5, created_at=NOW - 3000)
_MODEL = replace(_BASE, serves=True)
_RAN = replace(_BASE, running_at=NOW - 1000)
_ANSWERS = {"answered_at": NOW - 10}
_SILENT = {"answered_at": NOW - 20, "silent_at": NOW - 10}
_OVER = {"running_at": NOW - WALLTIME}


def case(base: Facts, state: J, **facts: object) -> Facts:
    return replace(base, state=state, **facts)


CASES = [
    # Waiting.
    ("not submitted", case(_BASE, J.CONFIGURING, created_at=NOW - UNSUBMITTED_S), S.QUEUED, False),
    ("never submitted", case(_BASE, J.CONFIGURING, created_at=NOW - UNSUBMITTED_S - 1), S.EXITED, False),
    ("age unknown", case(_BASE, J.CONFIGURING, created_at=None), S.QUEUED, False),
    ("submit in doubt", case(_BASE, J.CONFIGURING, doubted_at=NOW - 9), S.QUEUED, True),
    ("doubt is over", case(_BASE, J.CONFIGURING, doubted_at=NOW - DOUBT_S - 1), S.EXITED, True),
    ("model in doubt", case(_MODEL, J.CONFIGURING, doubted_at=NOW - SERVING_DOUBT_S), S.QUEUED, True),
    ("model, no doubt", case(_MODEL, J.CONFIGURING, doubted_at=NOW - SERVING_DOUBT_S - 1), S.EXITED, True),
    ("doubt, long ago", case(_BASE, J.CONFIGURING, doubted_at=NOW - 2 * WALLTIME), S.EXITED, False),
    ("stopped before", case(_BASE, J.CONFIGURING, stopping=True), S.EXITED, False),
    ("stopped in doubt", case(_BASE, J.CONFIGURING, stopping=True, doubted_at=NOW - 9), S.EXITED, True),
    ("runs, reads 1", case(_RAN, J.CONFIGURING, doubted_at=NOW - 9, **_ANSWERS), S.RUNNING, True),
    ("waits for account", case(_BASE, J.WAITING_FOR_ACCOUNT), S.QUEUED, False),
    ("submitted", case(_BASE, J.SUBMITTED), S.QUEUED, False),
    ("queued", case(_BASE, J.QUEUED, reason="Priority"), S.QUEUED, False),
    # Running.
    ("running", case(_RAN, J.RUNNING), S.RUNNING, False),
    ("running, not reached", case(_RAN, J.RUNNING, **_SILENT), S.RUNNING, False),
    ("not brought up to date", case(_BASE, J.RUNNING, running_at=NOW - WALLTIME - 200), S.EXITED, False),
    ("late, answers", case(_BASE, J.RUNNING, running_at=NOW - 7400, **_ANSWERS), S.RUNNING, False),
    # Silence.
    ("never seen", case(_BASE, J.UNKNOWN, seen_at=None), S.UNKNOWN, False),
    ("silent site", case(_RAN, J.RUNNING, seen_at=NOW - STALE_S - 1), S.UNKNOWN, False),
    ("silent site, answers", case(_RAN, J.RUNNING, seen_at=NOW - STALE_S - 1, **_ANSWERS), S.RUNNING, False),
    ("silent after failed", case(_RAN, J.FAILED, seen_at=NOW - STALE_S - 1), S.UNKNOWN, False),
    ("unknown state", case(_RAN, J.UNKNOWN), S.UNKNOWN, False),
    # Ends.
    ("finished", case(_RAN, J.FINISHED), S.EXITED, False),
    ("finished with its code", case(_RAN, J.FAILED, exit_code=3), S.EXITED, False),
    ("our cancel reads failed", case(_RAN, J.FAILED, stopping=True), S.EXITED, False),
    ("our cancel", case(_RAN, J.CANCELED, stopping=True), S.EXITED, False),
    ("walltime", case(_BASE, J.FAILED, **_OVER), S.EXITED, False),
    ("failed, unreached", case(_RAN, J.FAILED, **_SILENT), S.EXITED, True),
    ("false failed", case(_RAN, J.FAILED, **_ANSWERS), S.UNKNOWN, True),
    ("false cancelled", case(_RAN, J.CANCELED, **_ANSWERS), S.UNKNOWN, True),
    ("cancelled by others", case(_RAN, J.CANCELED), S.EXITED, False),
    ("failed in the queue", case(_BASE, J.FAILED), S.UNKNOWN, True),
    ("failed in the queue for good", case(_BASE, J.FAILED, confirmed=True), S.EXITED, True),
    ("cancelled in the queue", case(_BASE, J.CANCELED), S.UNKNOWN, True),
    ("cancelled in the queue for good", case(_BASE, J.CANCELED, confirmed=True), S.EXITED, False),
    ("stopped in the queue", case(_BASE, J.FAILED, stopping=True), S.EXITED, False),
    ("failed and begun after it", case(_RAN, J.FAILED, begun_late=True), S.UNKNOWN, True),
    ("failed, begun after it, over", case(_BASE, J.FAILED, begun_late=True, **_OVER), S.EXITED, False),
    ("deleted by us", case(_RAN, J.FAILED, deleted=True), S.GONE, False),
    ("deleted by others", case(_RAN, J.DELETED), S.GONE, False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "state", "billing"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_cases(facts: Facts, state: S, billing: bool) -> None:
    found = interpret(facts)
    assert (found.observation.state, bool(found.doubt)) == (state, billing)


@pytest.mark.parametrize(
    ("last", "state", "due"),
    [
        (None, J.QUEUED, True),
        ((J.QUEUED, NOW - 1), J.QUEUED, False),
        ((J.QUEUED, NOW - 1), J.RUNNING, False),  # its cancellation was in progress
        ((J.QUEUED, NOW - CANCEL_AGAIN_S), J.RUNNING, True),
        ((J.WAITING_FOR_ACCOUNT, NOW - 1), J.WAITING_FOR_ACCOUNT, False),
        ((J.WAITING_FOR_ACCOUNT, NOW - 1), J.QUEUED, True),  # 6.3 did not save it
        ((J.CONFIGURING, NOW - 1), J.RUNNING, True),
    ],
)
def test_one_cancel_is_enough(last: tuple[J, float] | None, state: J, due: bool) -> None:
    assert cancel_due(last, state, NOW) is due


def test_details() -> None:
    assert interpret(case(_BASE, J.QUEUED, reason="Priority")).observation.detail == "Priority"
    assert interpret(case(_RAN, J.FAILED, exit_code=255)).observation.exit_code == 255
    assert interpret(case(_RAN, J.FAILED, stopping=True)).observation.exit_code == -15
    assert interpret(case(_BASE, J.FAILED, **_OVER)).observation.walltime_over
    assert interpret(case(_BASE, J.FAILED, confirmed=True)).observation.never_started
    assert not interpret(case(_RAN, J.FAILED)).observation.walltime_over


_ENDED_LATE = case(_BASE, J.FINISHED, exit_code=0, terminated=True, ended_at=NOW, **_OVER)


@pytest.mark.parametrize(
    ("facts", "code", "over"),
    [
        (_ENDED_LATE, 0, True),
        (replace(_ENDED_LATE, exit_code=143), 143, True),
        (replace(_ENDED_LATE, terminated=False), 0, False),
        # A job that ends on request has not succeeded, whoever requested it.
        (replace(_ENDED_LATE, stopping=True), -15, False),
        (replace(_ENDED_LATE, ended_at=NOW - LAG_S - 1, running_at=NOW - WALLTIME + LAG_S), -15, False),
        (replace(_ENDED_LATE, running_at=NOW - 1000), -15, False),
        (replace(_ENDED_LATE, running_at=NOW - 1000, exit_code=143), 143, False),
        (replace(_ENDED_LATE, running_at=NOW - 1000, state=J.CANCELED), -15, False),
    ],
    ids=["exit-0", "exit-143", "by-itself", "stopped", "ended-before", "within-the-walltime", "failing",
         "scancel"],
)  # fmt: skip
def test_an_orderly_end_at_the_walltime(facts: Facts, code: int, over: bool) -> None:
    seen = interpret(facts).observation
    assert (seen.state, seen.exit_code, seen.walltime_over) == (S.EXITED, code, over)


@pytest.mark.parametrize("hours", [-11, -3.5, 0, 1, 2, 5.75, 13])
def test_times_of_a_server_in_any_zone(hours: float) -> None:
    zone = timedelta(hours=hours)
    running_at = NOW - 600
    started = datetime.fromtimestamp(running_at - 30, UTC) + zone
    found = interpret(case(_BASE, J.RUNNING, running_at=running_at, started=started)).observation
    assert found.ends_at == pytest.approx(running_at - 30 + WALLTIME)
    created = datetime.fromtimestamp(NOW - 3000, UTC) + zone
    expected = datetime.fromtimestamp(NOW + 4321, UTC) + zone
    found = interpret(case(_BASE, J.QUEUED, created=created, started=expected)).observation
    assert found.expected_start == pytest.approx(NOW + 4321)


_TIMES = st.none() | st.integers(-20_000, 0).map(lambda s: NOW + s)
_FACTS = st.builds(
    Facts,
    now=st.just(NOW),
    walltime_s=st.sampled_from([0.0, 60.0, WALLTIME]),
    state=st.sampled_from(J),
    seen_at=_TIMES,
    reason=st.sampled_from(["", "Priority"]),
    started=st.none() | st.datetimes(datetime(2026, 1, 1), datetime(2028, 1, 1), timezones=st.just(UTC)),
    created=st.none() | st.datetimes(datetime(2026, 1, 1), datetime(2028, 1, 1), timezones=st.just(UTC)),
    created_at=_TIMES,
    doubted_at=_TIMES,
    running_at=_TIMES,
    answered_at=_TIMES,
    silent_at=_TIMES,
    exit_code=st.none() | st.integers(0, 255),
    stopping=st.booleans(),
    deleted=st.booleans(),
    confirmed=st.booleans(),
    begun_late=st.booleans(),
)  # fmt: skip


@examples(150)
@given(_FACTS)
def test_silence_never_ends_a_job(facts: Facts) -> None:
    silent = replace(facts, seen_at=None, exit_code=None, deleted=False)
    assert interpret(silent).observation.state in (S.UNKNOWN, S.RUNNING)


@examples(150)
@given(_FACTS)
def test_a_job_that_answers_has_not_ended_by_failing(facts: Facts) -> None:
    answers = replace(
        facts, answered_at=NOW - PROBE_S / 2, silent_at=None, exit_code=None, deleted=False
    )
    found = interpret(answers)
    if answers.state in (J.FAILED, J.CANCELED, J.RUNNING, J.UNKNOWN, J.CONFIGURING):
        assert found.observation.state in (S.UNKNOWN, S.RUNNING)
    if answers.state in (J.FAILED, J.CANCELED) and found.observation.state is S.UNKNOWN:
        assert found.doubt or facts.seen_at is None or NOW - facts.seen_at > STALE_S


@examples(150)
@given(_FACTS)
def test_a_job_that_may_wait_on_is_in_doubt(facts: Facts) -> None:
    """HEAppE shows some jobs as failed that are still waiting, and then no longer cancels them."""
    waits = replace(facts, state=J.FAILED, running_at=None, answered_at=None, exit_code=None)
    found = interpret(replace(waits, stopping=False, deleted=False))
    assert found.doubt or found.observation.state is S.UNKNOWN
    assert found.observation.state is S.UNKNOWN or facts.confirmed


@examples(150)
@given(_FACTS)
def test_gone_only_if_it_was_deleted(facts: Facts) -> None:
    found = interpret(facts)
    if found.observation.state is S.GONE:
        assert facts.deleted or facts.state is J.DELETED


@examples(150)
@given(_FACTS)
def test_an_end_without_a_proof_says_that_it_may_cost(facts: Facts) -> None:
    """The job failed only according to the database, within its walltime, and not because of us."""
    found: Interpretation = interpret(facts)
    seen = found.observation
    surprising = facts.state is J.FAILED and not facts.stopping and facts.running_at is not None
    if seen.state is S.EXITED and surprising and facts.exit_code is None and not seen.walltime_over:
        assert found.doubt


@examples(150)
@given(_FACTS)
def test_the_end_of_the_walltime_is_plausible(facts: Facts) -> None:
    ends_at = interpret(facts).observation.ends_at
    if ends_at is not None:
        assert facts.running_at is not None
        assert -LAG_S <= ends_at - facts.walltime_s - facts.running_at <= 0
