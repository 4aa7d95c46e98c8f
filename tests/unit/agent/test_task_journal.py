"""The journal of a task runner, however it is cut, repeated, shuffled or forged."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.agent.kernel.outcome import KernelOutcome
from moorage.agent.kernel.task_list import judge
from moorage.agent.tasks import ListResult
from moorage.agent.tasks.feeding import MOST, wanted
from moorage.agent.tasks.journal import OUTPUT_BYTES, Journal, TaskEnd, lost
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState
from moorage.common.model.task_states import TaskState

REFS = st.tuples(st.integers(1, 20), st.integers(1, 3))
STARTS = REFS.map(lambda ref: ["S", *ref, 100.5])
ENDS = st.tuples(
    REFS, st.sampled_from([0, 1, -9, 255]), st.sampled_from(["", "timeout", "stopped"])
)
RECORDS = STARTS | ENDS.map(lambda end: ["E", *end[0], end[1], 0.5, "out", end[2]])
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


def text(records: list[Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


@given(st.lists(RECORDS, max_size=30), st.lists(st.integers(0, 2000), max_size=10))
@examples(200)
def test_pieces_say_the_same_as_the_whole(records: list[Any], cuts: list[int]) -> None:
    data = text([{"boot": "b"}, *records])
    whole = Journal()
    whole.read(data)
    pieces = Journal()
    at = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for begin, end in itertools.pairwise(at):
        pieces.read(data[begin:end])

    assert pieces == whole


@given(st.lists(RECORDS, max_size=30), st.randoms(use_true_random=False))
@examples(200)
def test_order_and_repeats_change_no_end_from_lost_to_success(
    records: list[Any], random: Any
) -> None:
    first_end: dict[Any, Any] = {}
    shuffled = records * 2
    random.shuffle(shuffled)
    journal = Journal()
    journal.read(text(shuffled))
    for record in shuffled:
        if record[0] == "E":
            first_end.setdefault((record[1], record[2]), record)

    assert journal.ended.keys() == first_end.keys() == journal.over()
    for ref, end in journal.ended.items():
        succeeded = first_end[ref][3] == 0 and first_end[ref][6] == ""
        assert (end.state is TaskState.SUCCEEDED) == succeeded

    # Nothing is both running and over, and nothing that started is forgotten.
    started = {(record[1], record[2]) for record in records if record[0] == "S"}
    assert journal.started.keys() == started - first_end.keys()
    assert all(end.state is TaskState.LOST for end in lost(journal.started))


@given(
    st.lists(ANY_JSON.map(lambda v: json.dumps(v).encode()) | st.binary(max_size=30), max_size=20)
)
@examples(200)
def test_what_a_program_forges_is_valid_or_left_out(lines: list[bytes]) -> None:
    journal = Journal()
    journal.read(b"\n".join(lines) + b"\n")
    for end in journal.ended.values():
        assert 1 <= end.number <= 100_000
        assert end.attempt >= 1
        assert 0 <= end.seconds < 1e10
        assert len(end.output) <= OUTPUT_BYTES
        assert b"\0" not in end.output


def test_a_torn_last_line_says_nothing() -> None:
    journal = Journal()
    journal.read(text([["S", 1, 1, 5.0]]) + b'["E", 1, 1, 0, 0.1, "", "')
    assert journal.started == {(1, 1): 5.0}
    assert not journal.ended
    journal.read(b'"]\n')
    assert journal.ended[1, 1] == TaskEnd(1, 1, TaskState.SUCCEEDED, 0, 5.0, seconds=0.1)


@given(st.integers(1, 1024), st.integers(0, 3000), st.floats(0, 10_000))
@examples(200)
def test_a_kernel_holds_enough_for_its_workers_and_no_more_than_it_can_run_soon(
    workers: int, held: int, rate: float
) -> None:
    asked = wanted(workers, held, rate)
    assert asked >= 0
    if asked:
        assert held + asked <= workers + MOST
    if held == 0:
        assert asked >= workers
    if rate == 0:
        assert held + asked == max(held, workers)  # long tasks are taken one by one


RESULTS = [
    # (result, text, success)
    (ListResult(3, 3, 0, 0, True), "all 3 tasks succeeded", True),
    (ListResult(10_000, 9_987, 12, 1, True), "12 of 10,000 tasks failed, 1 LOST", False),
    (ListResult(5, 4, 0, 1, True), "1 of 5 tasks are LOST", False),
    (ListResult(5, 3, 0, 0, False), "2 of 5 tasks did not run", False),
    (ListResult(5, 5, 0, 0, False), "", False),
]  # fmt: skip


@pytest.mark.parametrize(("result", "shown", "success"), RESULTS)
def test_results_count_and_only_a_whole_one_succeeds(
    result: ListResult, shown: str, success: bool
) -> None:
    assert result.success is success
    assert str(result) == shown


def outcome(reason: Reason) -> KernelOutcome:
    return KernelOutcome(ObservedState.EXITED, 0 if reason is Reason.EXIT_ZERO else 1, reason, "x")


@pytest.mark.parametrize(
    ("reason", "result", "expected"),
    [
        (Reason.EXIT_ZERO, RESULTS[0][0], Reason.EXIT_ZERO),
        # A program of the user can end the runner with any code.
        (Reason.EXIT_ZERO, RESULTS[1][0], Reason.TASKS_FAILED),
        (Reason.EXIT_ZERO, RESULTS[3][0], Reason.TASKS_FAILED),
        (Reason.EXIT_ZERO, None, Reason.TASKS_FAILED),
        (Reason.EXIT_NONZERO, RESULTS[1][0], Reason.TASKS_FAILED),
        (Reason.EXIT_NONZERO, RESULTS[3][0], Reason.EXIT_NONZERO),
        (Reason.KILLED, RESULTS[3][0], Reason.KILLED),
    ],
)
def test_a_kernel_succeeds_only_if_all_tasks_did(
    reason: Reason, result: ListResult | None, expected: Reason
) -> None:
    assert judge(outcome(reason), result).reason is expected
