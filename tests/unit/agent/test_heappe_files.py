"""Files in and out of a HEAppE job: what is chosen from the site's list, and what is refused."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from moorage.agent.runtimes.execution import Copy
from moorage.agent.runtimes.heappe import wire
from moorage.agent.runtimes.heappe.files import SiteUpload, one_file, selected, upload_name
from moorage.agent.runtimes.heappe.records import HeappeRecord
from moorage.common import archive
from moorage.common.model.errors import InvalidInput, MoorageError, NotFound
from moorage.common.model.ids import KernelId

LISTED = [
    "/7/progress.txt", "/7/launch.json", "/7/stdout.txt", "/7/model.bin", "/7/out/a", "/7/out/sub/b",
    "/7/../../etc/shadow", "/7/out/../../x", "/8/other", "/7//etc/passwd", "7/plain", "/7/" + "x" * 300,
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("model.bin", {"./model.bin"}),
        ("./out/", {"./out/a", "./out/sub/b"}),
        ("out/sub", {"./sub/b"}),
        ("stdout.txt", {"./stdout.txt"}),
        (".", {"./model.bin", "./out/a", "./out/sub/b", "./stdout.txt", "./plain"}),
    ],
)
def test_what_a_copy_out_has(path: str, expected: set[str]) -> None:
    found = selected(LISTED, path)
    assert set(found) == expected
    assert all(name in LISTED for name in found.values())


@pytest.mark.parametrize(
    "path", ["launch.json", "progress.txt", "absent", "other", "mod", "etc/passwd"]
)
def test_what_no_copy_out_has(path: str) -> None:
    with pytest.raises(NotFound):
        selected(LISTED, path)


@pytest.mark.parametrize("path", ["..", "/7/model.bin", "out/../..", "../8/other", "a\0"])
def test_paths_outside_are_refused(path: str) -> None:
    with pytest.raises(InvalidInput, match="not in the directory"):
        selected(LISTED, path)
    with pytest.raises(InvalidInput):
        upload_name(Copy(True, path, "x"))


def test_many_files_are_refused() -> None:
    with pytest.raises(InvalidInput, match="one by one"):
        selected([f"/7/{number}" for number in range(501)], ".")


@pytest.mark.parametrize(
    ("path", "name", "expected"),
    [(".", "a.txt", "a.txt"), ("", "a", "a"), ("b", "a", "b"), ("./b", "a", "b")],
)
def test_names_of_uploads(path: str, name: str, expected: str) -> None:
    assert upload_name(Copy(True, path, name)) == expected


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (".", "launch.json"), ("progress.txt", "a"), ("out/b", "a"), ("out/", "a"), (".", "-rf"),
        (".", "a b"),
        (".", "$(id)"), (".", "a;b"), (".", "x" * 101), (".", ""), (".", ".bashrc"), (".", "ä"), ("a'b", "x"),
    ],
)  # fmt: skip
def test_names_that_are_refused(path: str, name: str) -> None:
    with pytest.raises(InvalidInput):
        upload_name(Copy(True, path, name))


class Site:
    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    async def upload(self, job_id: int, task_id: int, name: str, data: bytes) -> None:
        self.files[name] = data


def packed(source: Path) -> bytes:
    sink = io.BytesIO()
    archive.pack(source, sink, lambda _: None)
    return sink.getvalue()


async def copied(data: bytes, *, ends: bool = True) -> dict[str, bytes]:
    site: Any = Site()
    copy = SiteUpload(site, HeappeRecord(KernelId("k"), "mg", 1, 2), Copy(True, ".", "a.bin"))
    for at in range(0, len(data), 32768):
        await copy.write(data[at : at + 32768])
    if ends:
        await copy.end_input()
    assert await copy.read() is None
    return site.files


async def test_a_file_is_uploaded(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(100_000))
    assert await copied(packed(tmp_path / "f")) == {"a.bin": bytes(100_000)}


async def test_directories_are_refused_before_they_have_come(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_bytes(bytes(100_000))
    with pytest.raises(InvalidInput, match="no directories"):
        await copied(packed(tmp_path / "d"), ends=False)


async def test_large_files_are_refused_before_they_have_come() -> None:
    info = tarfile.TarInfo(archive.ROOT)
    info.size = wire.UPLOAD.limit + 1
    with pytest.raises(InvalidInput, match="up to 100 MB"):
        await copied(info.tobuf() + bytes(8192), ends=False)


@pytest.mark.parametrize("data", [b"", b"x" * 600, tarfile.TarInfo("other").tobuf() + bytes(1024)])
async def test_streams_that_are_no_file_are_refused(data: bytes) -> None:
    with pytest.raises(MoorageError):
        await copied(data)


def test_a_cut_off_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(100_000))
    with pytest.raises(MoorageError):
        one_file(packed(tmp_path / "f")[:50_000])
