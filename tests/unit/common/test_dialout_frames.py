"""Frames on dial-out connections, however they are split and no matter what else arrives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.common.dialout import frames
from moorage.common.dialout.frames import BadFrame, FrameDecoder

NUMBERS = st.integers(0, 2**32 - 1)
SOME = st.one_of(
    st.tuples(st.just(frames.DATA), NUMBERS, st.binary(min_size=1, max_size=300)),
    st.tuples(
        st.sampled_from([k for k in range(frames.PONG + 1) if k != frames.DATA]),
        NUMBERS,
        st.binary(max_size=60),
    ),
)


def joined(found: list[frames.Frame]) -> list[frames.Frame]:
    """Consecutive data of one stream, as one frame."""
    result: list[frames.Frame] = []
    for kind, stream, payload in found:
        if kind == frames.DATA and result and result[-1][:2] == (kind, stream):
            result[-1] = (kind, stream, result[-1][2] + payload)
        else:
            result.append((kind, stream, payload))
    return result


@given(st.lists(SOME, max_size=12), st.lists(st.integers(1, 80), max_size=40))
@examples(200)
def test_frames_arrive_as_sent_however_they_are_cut(
    sent: list[frames.Frame], cuts: list[int]
) -> None:
    wire = b"".join(frames.frame(*one) for one in sent)
    decoder = FrameDecoder()
    found = list[frames.Frame]()
    for cut in cuts:
        found += decoder.feed(wire[:cut])
        wire = wire[cut:]

    found += decoder.feed(wire)
    assert joined(found) == joined(sent)


@given(st.binary(max_size=200))
@examples(200)
def test_any_bytes_are_frames_or_refused(data: bytes) -> None:
    try:
        found = FrameDecoder().feed(data)
    except BadFrame:
        return
    assert sum(len(payload) for _, _, payload in found) <= len(data)


@pytest.mark.parametrize(
    ("wire", "why"),
    [
        (frames.header(frames.DATA, 1, frames.MAX_DATA + 1), "data of 65537 bytes"),
        (frames.header(frames.PONG + 1, 1, 0), "kind 9"),
        (frames.header(frames.RESET, 1, frames.MAX_CONTROL + 1), "4097 bytes"),
    ],
)
def test_frames_that_are_refused(wire: bytes, why: str) -> None:
    with pytest.raises(BadFrame, match=why):
        FrameDecoder().feed(wire)


def test_numbers_of_another_size_are_refused() -> None:
    assert frames.port_of(frames.open_port(1, 65535)[frames.HEADER_BYTES :]) == 65535
    assert frames.credit_of(frames.credit(1, 7)[frames.HEADER_BYTES :]) == 7
    for payload in (b"", b"1", b"123456"):
        with pytest.raises(BadFrame):
            frames.port_of(payload)
        with pytest.raises(BadFrame):
            frames.credit_of(payload)
