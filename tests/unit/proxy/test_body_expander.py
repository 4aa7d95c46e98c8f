"""Compressed bodies: what they expand to, in slices and within limits."""

from __future__ import annotations

import gzip
import random
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.proxy.core.body_expander import BodyExpander, request_coding
from moorage.proxy.core.body_limit import BodyLimit
from moorage.proxy.core.error_response import ErrorResponse, no_body_memory

MIB = 1 << 20
JSON = b'{"model":"tiny","prompt":"%b"}' % b"how deep is the sea? " * 300
RANDOM = random.Random(1).randbytes(3 * MIB)


def raw(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKERS = {"gzip": gzip.compress, "deflate": zlib.compress, "deflate, raw": raw}


def expanded(
    data: bytes, coding: str = "gzip", *, limit: int = 64 * MIB, room: int = 1 << 40
) -> tuple[BodyExpander, list[int]]:
    """The expander at its end, and the sizes that it kept."""
    kept: list[int] = []

    def keep(size: int) -> ErrorResponse | None:
        kept.append(size)
        return no_body_memory() if size > room else None

    expander = BodyExpander(data, coding, BodyLimit(limit), keep)
    while expander.read_on():
        pass
    return expander, kept


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("body", [b"", b"{}", JSON, RANDOM, b"a" * MIB], ids=len)
def test_bodies_expand(packer: str, body: bytes) -> None:
    packed = PACKERS[packer](body)
    expander, kept = expanded(packed, packer.partition(",")[0])
    assert expander.error is None
    assert expander.body == body
    assert all(later - before <= 256 * 1024 for before, later in pairwise([len(packed), *kept]))


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=200))
def test_gzip_members_follow_each_other(bodies: list[bytes]) -> None:
    expander, _ = expanded(b"".join(map(gzip.compress, bodies)))
    assert (expander.error, expander.body) == (None, b"".join(bodies))


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("body", [b"{}", RANDOM], ids=len)
def test_truncated_bodies_are_refused(packer: str, body: bytes) -> None:
    packed = PACKERS[packer](body)
    coding = packer.partition(",")[0]
    for length in {*range(1, 30), len(packed) // 2, len(packed) - 1}:
        if length < len(packed):
            expander, _ = expanded(packed[:length], coding)
            assert expander.error is not None
            assert (expander.error.status, expander.error.code) == (400, "invalid_content_encoding")
            assert f"not valid {coding} data" in expander.error.message


@pytest.mark.parametrize(
    ("data", "coding", "status", "text"),
    [
        (b"{}", "gzip", 400, "incorrect header check"),
        (gzip.compress(b"{}")[:-8] + bytes(8), "gzip", 400, "incorrect data check"),
        (gzip.compress(b"{}") + b"{}", "gzip", 400, "incorrect header check"),
        (zlib.compress(b"{}") + b"{}", "deflate", 400, "something follows its end"),
        (gzip.compress(b"{}"), "deflate", 400, "not valid deflate data"),
        (zlib.compress(b"{}"), "gzip", 400, "not valid gzip data"),
        (gzip.compress(b"a" * (2 * MIB)), "gzip", 413, "more than 100 times"),
        (gzip.compress(b"", mtime=0) * 5000, "gzip", 413, "more than 4096 gzip members"),
        (gzip.compress(RANDOM), "gzip", 413, "decompressed body exceeds the limit of this proxy"),
    ],
    # Not the data: gzip's header has the time, so the names would differ between workers.
    ids=[
        "plain",
        "bad checksum",
        "gzip with a tail",
        "deflate with a tail",
        "gzip as deflate",
        "deflate as gzip",
        "bomb",
        "many members",
        "large",
    ],
)
def test_refused_bodies(data: bytes, coding: str, status: int, text: str) -> None:
    expander, _ = expanded(data, coding, limit=3 * MIB - 1)
    assert expander.error is not None
    assert expander.error.status == status
    assert text in expander.error.message
    assert not expander.error.close
    assert len(expander.body) < 4 * MIB


def test_refused_for_lack_of_memory() -> None:
    expander, kept = expanded(gzip.compress(RANDOM), room=4 * MIB)
    assert expander.error == no_body_memory()
    assert kept[-1] < 4 * MIB + 300_000


def test_a_bomb_is_left_at_the_limit() -> None:
    expander, kept = expanded(gzip.compress(bytes(256 * MIB)))
    assert expander.error is not None
    assert kept[-1] < 100 * 300_000
    assert len(kept) < 200


@pytest.mark.parametrize(
    ("given_coding", "expected"),
    [
        ("", ""),
        ("identity", ""),
        ("GZIP ", "gzip"),
        ("x-gzip", "gzip"),
        ("deflate", "deflate"),
        ("br", None),
        ("zstd", None),
        ("gzip, gzip", None),
        ("identity, gzip", None),
    ],
)
def test_codings(given_coding: str, expected: str | None) -> None:
    found = request_coding({"Content-Encoding": given_coding})
    if expected is None:
        assert isinstance(found, ErrorResponse)
        assert found.status == 415
        assert "Allowed: gzip, deflate or identity" in found.message
        assert found.headers == {"Accept-Encoding": "gzip, deflate, identity"}
    else:
        assert found == expected
