"""The head of a tar stream, as tar programs and tarfile write it, in pieces of every size."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from moorage.common.archive import ArchiveLimits, unpack
from moorage.common.tar_head import BLOCK, TarHead, file_end, file_head

LONG = "ü" * 120  # 240 bytes: longer than a header has room for
KINDS = (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT)


def packed(name: str, content: bytes, kind: int, **fields: object) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=kind) as tar:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        for field, value in fields.items():
            setattr(entry, field, value)
        tar.addfile(entry, io.BytesIO(content))

    return stream.getvalue()


def read(stream: bytes, piece: int) -> tuple[TarHead, bytes]:
    """The head, and the bytes after those that it needed."""
    head = TarHead()
    for at in range(0, len(stream), piece):
        if head.feed(stream[at : at + piece]):
            return head, stream[at + piece :]

    return head, b""


@pytest.mark.parametrize("piece", [1, 511, 512, 4096, 1 << 20])
@pytest.mark.parametrize(
    ("kind", "name"), [*((k, "short") for k in KINDS), *((k, LONG) for k in KINDS[:2])]
)
def test_the_content_of_a_file_follows_its_head(kind: int, name: str, piece: int) -> None:
    head, rest = read(packed(name, b"content", kind), piece)
    assert head.is_file
    assert head.entry is not None
    assert (head.content + rest)[: head.size] == b"content"


def test_a_size_that_only_the_extended_header_has() -> None:
    """As tarfile writes files of 8 GiB in the format of jobs at a site."""
    entry = tarfile.TarInfo("./x")
    entry.size = 9 << 30
    head, _ = read(entry.tobuf(tarfile.PAX_FORMAT), 700)
    assert head.is_file
    assert head.entry is not None
    assert head.size == 9 << 30


def test_directories_are_told_from_files(tmp_path: Path) -> None:
    head, _ = read(packed("./sub", b"", tarfile.GNU_FORMAT, type=tarfile.DIRTYPE), 100)
    assert not head.is_file
    assert head.entry is not None
    assert head.entry.isdir()
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        file.truncate(1 << 20)

    stream = subprocess.run(
        ["tar", "-cSf", "-", "-C", str(tmp_path), "sparse"], stdout=subprocess.PIPE, check=True
    ).stdout
    head, _ = read(stream, 100)
    assert head.entry is not None
    assert not head.is_file, "its content is not in order"


def test_a_stream_without_an_entry_is_empty() -> None:
    head, _ = read(bytes(2 * BLOCK), 512)
    assert (head.is_empty, head.entry) == (True, None)
    head = TarHead()
    assert not head.feed(b"x" * (BLOCK - 1))
    assert not head.is_empty


@pytest.mark.parametrize(
    "stream",
    [
        b"<!doctype html>" * 100,
        packed("x", b"y", tarfile.GNU_FORMAT).replace(b"0000", b"0001", 1),
        packed(LONG * 4000, b"", tarfile.GNU_FORMAT),
    ],
)
def test_other_streams_are_refused(stream: bytes) -> None:
    with pytest.raises(ValueError, match="tar stream"):
        read(stream, 4096)


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513])
def test_a_file_between_head_and_end_is_a_copy(tmp_path: Path, size: int) -> None:
    stream = io.BytesIO(file_head(size, 1.5) + b"x" * size + file_end(size))
    unpack(
        stream,
        tmp_path / "copy",
        top="copy",
        report=lambda _: None,
        limits=ArchiveLimits(size, entries=1),
    )
    assert (tmp_path / "copy").read_bytes() == b"x" * size


def test_the_head_has_room_for_any_size() -> None:
    head, _ = read(file_head(1 << 50, 0), 512)
    assert head.entry is not None
    assert head.size == 1 << 50
