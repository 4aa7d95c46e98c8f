"""WebSocket frames: a relay knows when it may send one of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance.planes.websocket import CLOSE, frame

from moorage.proxy.core.websocket import Farewell, FrameTracker

frames = st.builds(
    frame,
    st.sampled_from([0, 1, 2, 9, 10]),
    st.binary(max_size=300) | st.just(b"x" * 70_000),
    mask=st.sampled_from([b"", b"mask"]),
    fin=st.booleans(),
)


@given(st.lists(frames, max_size=4), st.integers(1, 400))
def test_between_frames_only(sent: list[bytes], size: int) -> None:
    tracker = FrameTracker()
    data = b"".join(sent)
    ends = {0}
    for one in sent:
        ends.add(max(ends) + len(one))
    for start in range(0, len(data), size):
        piece = data[start : start + size]
        tracker.feed(piece)
        assert tracker.may_close == (start + len(piece) in ends)


def test_not_after_a_close_frame() -> None:
    tracker = FrameTracker()
    tracker.feed(frame(1, b"text"))
    assert tracker.may_close
    tracker.feed(frame(CLOSE, b""))
    assert not tracker.may_close
    tracker.feed(frame(1, b"text"))
    assert not tracker.may_close


@given(st.binary(max_size=200))
def test_what_is_no_frame_does_no_harm(data: bytes) -> None:
    FrameTracker().feed(data)


@pytest.mark.parametrize("farewell", list(Farewell))
def test_frame_of_a_farewell(farewell: Farewell) -> None:
    code, text = farewell.value
    assert farewell.frame() == frame(CLOSE, code.to_bytes(2) + text.encode())
    assert len(farewell.frame()) <= 2 + 125, "a control frame has at most 125 bytes"
