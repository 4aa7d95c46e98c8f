"""Copies between tar streams and a job's directory, which its owner fills with traps."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.agent.runtimes.batch.copying import CopyIn, CopyOut, pack, receive
from moorage.agent.runtimes.execution import Copy, ExecFailed
from moorage.common import archive
from moorage.common.archive import ROOT, ArchiveLimits, UnsafeArchive
from moorage.common.model.errors import InvalidInput, MoorageError, NotFound


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A job's directory, next to files that do not belong to the job."""
    (tmp_path / "spec.json").write_text("secret")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "mine").write_text("secret")
    made = tmp_path / "kernel" / "work"
    made.mkdir(parents=True)
    return made


def packed(source: Path) -> io.BytesIO:
    sink = io.BytesIO()
    archive.pack(source, sink, lambda _: None)
    return io.BytesIO(sink.getvalue())


def received(work: Path, path: str, source: Path, name: str = "", *, complete: bool = True) -> None:
    receive(work, Copy(True, path, name or source.name), packed(source), lambda: complete)


def fetched(work: Path, path: str, into: Path, top: str = "") -> Path:
    sink = io.BytesIO()
    pack(work, path, sink)
    sink.seek(0)
    archive.unpack(sink, into, top, lambda _: None, limits=ArchiveLimits(1_000_000))
    return into


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def test_a_directory_comes_back_as_it_went(work: Path, tmp_path: Path) -> None:
    source = tmp_path / "data"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "näme\udcff").write_bytes(b"x" * 100_000)
    (source / "run").write_text("#!/bin/sh\n")
    (source / "run").chmod(0o755)
    (source / "link").symlink_to("sub")
    received(work, ".", source)
    assert tree(work / "data") == tree(source)
    received(work, "data/sub", source / "run")
    assert (work / "data" / "sub" / "run").stat().st_mode & 0o777 == 0o755
    back = fetched(work, "data/", tmp_path / "back")
    assert tree(back) == tree(work / "data")
    assert tree(fetched(work, ".", tmp_path / "all", ".")) == tree(work)
    assert tree(fetched(work, "./data//run", tmp_path / "one").parent)["one"] == "#!/bin/sh\n"
    assert os.listdir(work.parent) == ["work"]


def test_a_copy_takes_the_name_of_its_target(work: Path, tmp_path: Path) -> None:
    source = tmp_path / "a"
    source.write_text("1")
    received(work, "b", source)
    received(work, "", source, "c")
    assert tree(work) == {"b": "1", "c": "1"}
    (work / "d").mkdir()
    received(work, "d/", source)
    assert (work / "d" / "a").read_text() == "1"


OUTSIDE = [
    "/etc/passwd",
    "..",
    "../spec.json",
    "a/../../spec.json",
    "../../outside",
    "a\0b",
    "./..",
    "x/..",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_paths_outside_are_refused(work: Path, tmp_path: Path, path: str) -> None:
    before = tree(tmp_path)
    with pytest.raises(InvalidInput):
        pack(work, path, io.BytesIO())
    with pytest.raises(InvalidInput):
        received(work, path, tmp_path / "outside")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/x"])
def test_names_outside_are_refused(work: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput):
        receive(work, Copy(True, ".", name), packed(tmp_path / "outside" / "mine"), lambda: True)
    assert tree(work) == {}


@pytest.mark.parametrize("target", ["../../outside", "../..", "/", "../../outside/mine", "."])
@pytest.mark.parametrize(
    "path", ["link", "link/", "link/mine", "link/outside/mine", "sub/link/mine"]
)
def test_no_link_of_the_job_is_followed(work: Path, tmp_path: Path, target: str, path: str) -> None:
    (work / "sub").mkdir()
    for link in (work / "link", work / "sub" / "link"):
        link.symlink_to(target)

    source = tmp_path / "new"
    source.write_text("new")
    outside = tree(tmp_path / "outside")
    sink = io.BytesIO()
    with pytest.raises(MoorageError):
        pack(work, path, sink)

    assert b"secret" not in sink.getvalue()
    try:
        received(work, path, source)
    except MoorageError:
        pass
    else:
        assert (work / "link").read_text() == "new", "the link itself was replaced"

    assert tree(tmp_path / "outside") == outside
    assert not (tmp_path / "new").is_symlink()
    assert set(os.listdir(tmp_path)) == {"kernel", "new", "outside", "spec.json"}


def test_links_are_copied_as_links(work: Path, tmp_path: Path) -> None:
    (work / "data").mkdir()
    (work / "data" / "secret").symlink_to("../../../spec.json")
    (work / "data" / "all").symlink_to("/")
    os.mkfifo(work / "data" / "pipe")
    sink = io.BytesIO()
    pack(work, "data", sink)

    with tarfile.open(fileobj=io.BytesIO(sink.getvalue())) as tar:
        assert {entry.name: entry.type for entry in tar} == {
            "./data": tarfile.DIRTYPE, "./data/all": tarfile.SYMTYPE, "./data/secret": tarfile.SYMTYPE,
        }  # fmt: skip

    sink.seek(0)
    assert (
        len(
            archive.unpack(
                sink, tmp_path / "it", "", lambda _: None, limits=ArchiveLimits(9999)
            ).skipped
        )
        == 2
    )


def test_a_link_below_the_target_is_replaced(work: Path, tmp_path: Path) -> None:
    source = tmp_path / "data"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "mine").write_text("new")
    (work / "data").mkdir()
    (work / "data" / "sub").symlink_to("../../../outside")
    received(work, ".", source)
    assert (tmp_path / "outside" / "mine").read_text() == "secret"
    assert (work / "data" / "sub" / "mine").read_text() == "new"


def entries(*found: tuple[str, bytes, str]) -> io.BytesIO:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for name, kind, link in found:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.linkname = link
            tar.addfile(info)
    return io.BytesIO(sink.getvalue())


@pytest.mark.parametrize(
    "stream",
    [
        entries((ROOT, tarfile.DIRTYPE, ""), ("../evil", tarfile.REGTYPE, "")),
        entries((ROOT, tarfile.DIRTYPE, ""), (f"{ROOT}/../../evil", tarfile.REGTYPE, "")),
        entries(("/evil", tarfile.REGTYPE, "")),
        entries((ROOT, tarfile.DIRTYPE, ""), (f"{ROOT}/x", tarfile.LNKTYPE, "../../spec.json")),
        entries((ROOT, b"5", ""), (f"{ROOT}/x", tarfile.SYMTYPE, "sub"), (f"{ROOT}/x/evil", b"0", "")),
        io.BytesIO(b"no tar"),
    ],
)  # fmt: skip
def test_hostile_streams_copy_nothing(work: Path, tmp_path: Path, stream: io.BytesIO) -> None:
    before = tree(tmp_path)
    with pytest.raises(UnsafeArchive):
        receive(work, Copy(True, ".", "x"), stream, lambda: True)
    assert tree(tmp_path) == before
    assert os.listdir(work.parent) == ["work"]


def test_kinds_are_not_mixed(work: Path, tmp_path: Path) -> None:
    (work / "sub").mkdir()
    (work / "sub" / "mine").mkdir()
    (work / "file").write_text("x")
    with pytest.raises(InvalidInput, match="is a directory"):
        received(work, "sub", tmp_path / "outside" / "mine")
    with pytest.raises(InvalidInput, match="is not a directory"):
        received(work, "file", tmp_path / "outside")
    with pytest.raises(NotFound, match="no directory nowhere"):
        received(work, "nowhere/x", tmp_path / "outside")
    with pytest.raises(NotFound, match="nowhere"):
        pack(work, "nowhere", io.BytesIO())


# The two, as driven by the agent's link.


async def collected(copy: CopyOut) -> bytes:
    found = b""
    while (piece := await copy.read()) is not None:
        found += piece[1]
    return found


async def test_a_large_copy_out_waits_for_its_reader(work: Path, tmp_path: Path) -> None:
    (work / "big").write_bytes(os.urandom(3_000_000))
    copy = CopyOut(lambda sink: pack(work, "big", sink))
    data = await collected(copy)
    copy.disconnect()
    archive.unpack(
        io.BytesIO(data), tmp_path / "it", "", lambda _: None, limits=ArchiveLimits(9_999_999)
    )
    assert (tmp_path / "it").read_bytes() == (work / "big").read_bytes()


async def test_errors_are_told_to_the_reader(work: Path) -> None:
    copy = CopyOut(lambda sink: pack(work, "nowhere", sink))
    with pytest.raises(NotFound):
        await collected(copy)
    copy.disconnect()


async def sent(copy: CopyIn, data: bytes, act: Callable[[CopyIn], object]) -> None:
    for at in range(0, len(data), 32768):
        await copy.write(data[at : at + 32768])
    result = act(copy)
    if asyncio.iscoroutine(result):
        await result


async def test_a_copy_in_is_complete_or_not_there(work: Path, tmp_path: Path) -> None:
    source = tmp_path / "big"
    source.write_bytes(os.urandom(3_000_000))
    data = packed(source).getvalue()
    copy = CopyIn(
        lambda file, is_complete: receive(work, Copy(True, ".", "big"), file, is_complete)
    )
    await sent(copy, data, CopyIn.end_input)
    assert await copy.read() is None
    copy.disconnect()
    assert (work / "big").read_bytes() == source.read_bytes()

    # The user disconnects after the last byte of the last file, but before the end.
    cut = CopyIn(lambda file, is_complete: receive(work, Copy(True, ".", "cut"), file, is_complete))
    await sent(cut, data, CopyIn.disconnect)
    with pytest.raises(ExecFailed, match="cut off"):
        await cut.read()

    assert os.listdir(work) == ["big"]
    assert os.listdir(work.parent) == ["work"]


async def test_a_refused_copy_in_takes_no_more(work: Path, tmp_path: Path) -> None:
    copy = CopyIn(
        lambda file, is_complete: receive(work, Copy(True, "../x", "x"), file, is_complete)
    )
    async with asyncio.timeout(30):
        for _ in range(100):
            await copy.write(bytes(32768))
    with pytest.raises(InvalidInput):
        await copy.read()
    copy.disconnect()
