"""Position in a log that is read again: nothing is lost and nothing comes twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage.sdk.log_following import SeenLog

LINES = st.lists(st.integers(0, 99), max_size=40).map(
    lambda numbers: b"".join(b"%03d:%d\n" % pair for pair in enumerate(numbers))
)
SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=5)


def pieces(log: bytes, sizes: list[int]) -> list[bytes]:
    found = []
    while log:
        size = sizes[len(found) % len(sizes)]
        found.append(log[:size])
        log = log[size:]
    return found


@given(LINES, SIZES, st.lists(st.integers(0, 200), max_size=4), st.integers(0, 20) | st.none())
def test_readings_that_are_cut_off_yield_the_log_once(
    log: bytes, sizes: list[int], cuts: list[int], skipped_lines: int | None
) -> None:
    begins = 0 if skipped_lines is None else len(b"".join(log.splitlines(keepends=True)[:skipped_lines]))
    seen, read = SeenLog(complete=skipped_lines is None), b""
    for cut in [*sorted(cuts), len(log)]:
        start = begins if seen.is_empty else 0
        cut = max(cut, begins + 7)  # a line is unique, its first letters are not
        if not seen.is_empty:
            seen.reread()
        read += b"".join(map(seen.feed, pieces(log[start : max(cut, start)], sizes)))
    assert read == log[begins:]
