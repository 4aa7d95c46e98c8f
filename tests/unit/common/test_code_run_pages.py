"""Pages of runs: the index agrees with a reader that sums every item, and waiting does not sum
anything."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from moorage.common.model import code_runs
from moorage.common.model.code_runs import RunItems, RunPage, RunStatus

BODIES = st.one_of(
    st.builds(lambda text: {"type": "stdout", "text": text}, st.text(max_size=40)),
    st.sampled_from([{"type": "input", "prompt": "?"}, {"type": "answered"}]),
    st.builds(
        lambda stage, code: {"type": "stage", "stage": stage, "exit_code": code},
        st.sampled_from(["clean", "build", "exec"]),
        st.integers(0, 3),
    ),
)


def summed(items: list[dict[str, Any]], after: int, limit: int) -> RunPage:
    """The page by definition."""
    size = 0
    at = after
    while at < len(items):
        item = items[at]
        size += len(json.dumps(item))
        if at > after and size > limit:
            return RunPage(RunStatus.CONTINUED, items[after:at], at)

        at += 1
        if item["type"] == "stage" and item["stage"] != "exec":
            status = RunStatus(f"{item['stage']}-finished")
            return RunPage(status, items[after:at], at, item["exit_code"])
        if item["type"] == "end":
            status = RunStatus(item["status"])
            return RunPage(
                status, items[after:at], next=at, exit_code=item["exit_code"], reason=item["reason"]
            )

    turns = [
        item["type"] for item in items if item["type"] in ("input", "answered", "stage", "end")
    ]
    is_open = bool(turns) and turns[-1] == "input"
    return RunPage(RunStatus.WAITING_INPUT if is_open else RunStatus.CONTINUED, items[after:at], at)


@given(
    items=st.lists(BODIES, max_size=20),
    ended=st.booleans(),
    after=st.integers(0, 22),
    limit=st.integers(1, 400),
)
def test_a_page_is_as_its_definition_says(
    items: list[dict[str, Any]], ended: bool, after: int, limit: int
) -> None:
    items = [*items, dict(code_runs.end(0))] if ended else items
    record = RunItems(items)
    expected = summed(items, after, limit)
    assert record.page(after, limit) == expected
    more = expected.status is not RunStatus.CONTINUED or expected.next < len(items)
    assert record.is_settled(after, limit) is more


def test_a_reader_who_waits_sums_no_item_again() -> None:
    record = RunItems({"type": "stdout", "text": "x"} for _ in range(1000))
    for item in record.items:
        item["text"] = object()  # whose size can no longer be determined
    assert not record.is_settled(0)
    assert record.page(990).next == 1000
