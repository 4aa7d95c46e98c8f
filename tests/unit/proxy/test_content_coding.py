"""Content codings: what is offered to replicas, and what is read from compressed answers."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.proxy.core.content_coding import Unpacker, offered
from moorage.proxy.core.headers import kept_for_provider, kept_for_replica
from moorage.proxy.core.token_meter import PackedMeter, Tokens

USAGE = {"prompt_tokens": 7, "completion_tokens": 5}
ANSWER = json.dumps({"choices": ["x" * 9000], "usage": USAGE}).encode()


@pytest.mark.parametrize(
    ("accepted", "sent"),
    [
        ("gzip, deflate, br, zstd", "gzip"),
        ("br;q=1.0, gzip;q=0.8, *;q=0.1", "gzip;q=0.8"),
        ("br, zstd", "identity"),
        ("deflate", "identity"),
        ("*", "gzip"),
        ("br, *;q=0", "identity"),
        ("gzip;q=0, *", "gzip;q=0"),
        ("identity", "identity"),
        ("", "identity"),
        ("X-GZip", "X-GZip"),
    ],
)
def test_replicas_are_offered_what_can_be_read(accepted: str, sent: str) -> None:
    assert offered(accepted) == sent
    assert kept_for_replica([("accept-Encoding", accepted)]) == [("accept-Encoding", sent)]
    assert ("accept-Encoding", sent) in kept_for_provider([("accept-Encoding", accepted)])
    assert kept_for_replica([("Accept-Encoding", accepted)], uncompressed=True) == []


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


@examples(100)
@given(
    st.lists(st.integers(0, 1 << 20), max_size=8), st.lists(st.binary(max_size=2000), max_size=4)
)
def test_answer_in_pieces(places: list[int], members: list[bytes]) -> None:
    packed = b"".join(map(gzip.compress, members))
    unpacker = Unpacker("gzip")
    assert b"".join(map(unpacker.feed, cut(packed, places))) == b"".join(members)
    assert not unpacker.is_lost


def test_many_members_in_one_piece_are_not_read() -> None:
    unpacker = Unpacker("gzip")
    assert unpacker.feed(gzip.compress(b"a") * 60) == b"a" * 60
    assert not unpacker.is_lost
    unpacker.feed(gzip.compress(b"a") * 10_000)
    assert unpacker.is_lost


@pytest.mark.parametrize("coding", ["gzip", "X-GZIP "])
def test_tokens_of_a_compressed_answer(coding: str) -> None:
    meter = PackedMeter(coding, is_stream=False)
    for piece in cut(gzip.compress(ANSWER), [10, 50]):
        assert meter.feed(piece) is piece, "the client gets it as it is"
    assert meter.estimate(3) == Tokens(7, 5)


def test_each_event_of_a_compressed_stream_is_read_as_it_comes() -> None:
    packer = zlib.compressobj(wbits=31)
    meter = PackedMeter("gzip", is_stream=True)
    for number in range(4):
        event = packer.compress(b'data: {"n": %d}\n\n' % number) + packer.flush(zlib.Z_SYNC_FLUSH)
        meter.feed(event)
        assert meter.estimate(3) == Tokens(3, number), "no statement yet: as of any stream"
    meter.feed(packer.compress(b"data: " + ANSWER + b"\n\n") + packer.flush())
    assert meter.estimate(3) == Tokens(7, 5)


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, br", "deflate"])
def test_what_cannot_be_read_counts_by_its_size(coding: str) -> None:
    meter = PackedMeter(coding, is_stream=False)
    for _ in range(10):
        meter.feed(b"?" * 40)
    assert meter.estimate(3) == Tokens(3, 100)
    broken = PackedMeter("gzip", is_stream=False)
    broken.feed(gzip.compress(ANSWER, mtime=0)[:-20] + b"?" * 4000)
    assert broken.estimate(3).answer >= 1000


def test_one_dense_answer_does_not_hold_up_others() -> None:
    """A gigabyte of zeros in one megabyte."""
    packer = zlib.compressobj(wbits=31)
    unpacker = Unpacker("gzip")
    size = 0
    zeros = bytes(1 << 24)
    for _ in range(64):
        piece = packer.compress(zeros)
        size = max(size, len(unpacker.feed(piece)) - 32 * len(piece))

    assert size <= 1 << 20
    assert unpacker.is_lost
    assert unpacker.feed(packer.flush()) == b""
