"""SFTP packets in a stream: they are the same however the stream was split."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.sftp.framing import HEAD, Packets, Pieces, whole
from moorage.common.sftp.wire import MAX_PACKET, Malformed

BODIES = st.lists(st.binary(min_size=1, max_size=60), max_size=12)


@given(bodies=BODIES, cuts=st.lists(st.integers(0, 700), max_size=20))
def test_packets_are_found_wherever_the_stream_is_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(len(one).to_bytes(4) + one for one in bodies)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    chunks = [stream[at:end] for at, end in pairwise(edges)]
    pieces = Pieces()
    packets = Packets()
    found = [packet for chunk in chunks for packet in pieces.feed(chunk)]
    assert [whole(packet)[4:] for packet in found] == bodies
    assert all(len(packet[0]) >= min(HEAD, len(whole(packet))) for packet in found)
    assert [packet for chunk in chunks for packet in packets.feed(chunk)] == bodies


@pytest.mark.parametrize("length", [0, MAX_PACKET + 1, 2**32 - 1])
def test_a_length_out_of_bounds_is_refused(length: int) -> None:
    with pytest.raises(Malformed):
        Pieces().feed(length.to_bytes(4))
