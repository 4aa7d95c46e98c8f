"""Archives for ``moorage cp``: safe unpacking, and the round trip of packing and unpacking."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.cli.commands.cp import remote_path
from moorage.common.archive import (
    ROOT,
    ArchiveLimits,
    UnsafeArchive,
    install,
    pack,
    parts_of,
    size_of,
    stays_inside,
    unpack,
)


def entry(
    name: str,
    kind: bytes = tarfile.REGTYPE,
    link: str = "",
    data: bytes = b"x",
    *,
    mode: int = 0o644,
):
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = link
    info.mode = mode
    info.size = len(data) if kind == tarfile.REGTYPE else 0
    return info, data if kind == tarfile.REGTYPE else None


LIMITS = ArchiveLimits(size=1_000_000)
DIR = tarfile.DIRTYPE
LINK = tarfile.SYMTYPE
HARD = tarfile.LNKTYPE
FIFO = tarfile.FIFOTYPE


def tar_of(*entries: tuple[tarfile.TarInfo, bytes | None]) -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data) if data is not None else None)
    file.seek(0)
    return file


def ignore_progress(_: int) -> None:
    pass


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "/etc/x",
        "top/../../x",
        "other",
        "other/x",
        "",
        ".",
        "top/../x",
        "./../top",
        "..",
        "topp/x",
    ],
)
def test_unpack_refuses_entries_outside_the_copy(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnsafeArchive):
        unpack(
            tar_of(entry("top", DIR), entry(name)),
            tmp_path / "it",
            "top",
            ignore_progress,
            limits=LIMITS,
        )
    assert sorted(path.name for path in tmp_path.rglob("*")) in (["it"], [])
    assert not (tmp_path.parent / "x").exists()


@given(
    st.lists(st.sampled_from(["a", "..", ".", "", "top", "b c", "..."]), max_size=6).map("/".join)
)
def test_entry_names_stay_below_the_copy_or_are_refused(name: str) -> None:
    try:
        parts = parts_of(name, "top")
    except UnsafeArchive:
        return
    assert ".." not in parts
    assert os.path.normpath(name).split("/")[0] == "top"
    assert os.path.normpath("/".join(("top", *parts))) == os.path.normpath(name)


@given(
    st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=3).map(tuple),
    st.lists(st.sampled_from(["a", "..", ".", "", "c"]), max_size=6).map("/".join),
)
def test_accepted_links_point_inside_the_copy(parts: tuple[str, ...], target: str) -> None:
    inside = stays_inside(parts, target)
    expected = os.path.normpath(os.path.join("/copy", *parts[:-1], target))
    if inside:
        assert f"{expected}/".startswith("/copy/")
    # The target is resolved by its text alone, without following the links on the path to it.
    assert inside or target.startswith("/") or not target or ".." in target.split("/")


def test_unpack_leaves_out_links_that_point_outside(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    sent = tar_of(
        entry("top", DIR, mode=0o555),
        entry("top/away", LINK, str(outside)),
        entry("top/up", LINK, "../../outside"),
        entry("top/fine", LINK, "sub/file"),
        entry("top/sub", DIR),
        entry("top/sub/file", data=b"data", mode=0o6755),
        entry("top/again", HARD, "top/sub/file"),
        entry("top/pipe", FIFO),
    )
    copied = unpack(sent, tmp_path / "it", "top", ignore_progress, limits=LIMITS)
    unpacked = tmp_path / "it"
    assert sorted(path.name for path in unpacked.iterdir()) == ["again", "fine", "sub"]
    assert (unpacked / "fine").read_bytes() == (unpacked / "again").read_bytes() == b"data"
    assert (unpacked / "sub/file").stat().st_mode & 0o7777 == 0o755, "the setuid bit was kept"
    assert unpacked.stat().st_mode & 0o777 == 0o555
    assert (copied.files, copied.size) == (3, 4)
    assert [line.split()[0] for line in copied.skipped] == ["away", "up", "pipe"]
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda out: [entry("top", DIR), entry("top/l", LINK, out), entry("top/l/x")],
        lambda out: [entry("top", LINK, out), entry("top/x")],
        lambda out: [entry("top", DIR), entry("top/l", HARD, f"{out}/secret")],
        lambda out: [entry("top", DIR), entry("top/l", HARD, "../outside/secret")],
        lambda out: [entry("top", DIR), entry("top/a"), entry("top/a")],
    ],
)
def test_unpack_refuses_archives_that_write_through_links(
    make: Callable[[str], list], tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    with pytest.raises((OSError, UnsafeArchive)):
        unpack(tar_of(*make(str(outside))), tmp_path / "it", "top", ignore_progress, limits=LIMITS)
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").stat().st_nlink == 1


def test_unpack_accepts_any_single_top_name(tmp_path: Path) -> None:
    unpack(tar_of(entry("./real", data=b"r")), tmp_path / "it", "", ignore_progress, limits=LIMITS)
    assert (tmp_path / "it").read_bytes() == b"r"
    for names in (("a", "b"), ("..", "../x"), ("/etc", "/etc/x"), ("",)):
        with pytest.raises(UnsafeArchive):
            unpack(
                tar_of(*(entry(name, DIR) for name in names)),
                tmp_path / names[0][:1],
                "",
                ignore_progress,
                limits=LIMITS,
            )


def test_unpack_refuses_a_truncated_stream(tmp_path: Path) -> None:
    complete = tar_of(entry("top", data=b"y" * 100_000)).getvalue()
    with pytest.raises(UnsafeArchive):
        unpack(
            io.BytesIO(complete[:50_000]), tmp_path / "it", "top", ignore_progress, limits=LIMITS
        )


def test_pack_and_unpack_round_trip(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub" / "deep").mkdir(parents=True)
    (source / "sub" / "run").write_bytes(b"#!\n" * 1000)
    (source / "sub" / "run").chmod(0o750)
    (source / "empty").touch()
    (source / "link").symlink_to("sub/run")
    os.mkfifo(source / "pipe")
    sizes: list[int] = []
    stream = io.BytesIO()
    copied = pack(source, stream, sizes.append)
    assert (copied.files, copied.size, sum(sizes), size_of(source)) == (
        3,
        3000,
        3000,
        3000 + len("sub/run"),
    )
    assert copied.skipped == ["pipe is not a file, directory or link"]
    stream.seek(0)
    unpack(stream, tmp_path / "it", ROOT, ignore_progress, limits=LIMITS)
    install(tmp_path / "it", tmp_path / "target")
    target = tmp_path / "target"
    assert (target / "sub/run").read_bytes() == b"#!\n" * 1000
    assert (target / "sub/run").stat().st_mode & 0o777 == 0o750
    assert os.readlink(target / "link") == "sub/run"
    assert sorted(path.name for path in target.iterdir()) == ["empty", "link", "sub"]
    assert (target / "sub/deep").is_dir()


def test_install_merges_directories_and_replaces_files(tmp_path: Path) -> None:
    for name, text in (
        ("source/a", "new"),
        ("source/d/b", "new"),
        ("target/a", "old"),
        ("target/d/c", "old"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    install(tmp_path / "source", tmp_path / "target")
    found = {
        str(p.relative_to(tmp_path)): p.read_text() for p in tmp_path.rglob("*") if p.is_file()
    }
    assert found == {"target/a": "new", "target/d/b": "new", "target/d/c": "old"}
    (tmp_path / "source").write_text("file")
    with pytest.raises(OSError, match="irectory"):
        install(tmp_path / "source", tmp_path / "target")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dev:", ("dev", "")), ("dev:/a:b", ("dev", "/a:b")), ("org/dev:x", ("org/dev", "x")),
        ("file", None), ("./a:b", None), ("/a:b", None), ("~/a:b", None), (":x", None), ("", None),
    ],
)  # fmt: skip
def test_remote_path(text: str, expected: tuple[str, str] | None) -> None:
    assert remote_path(text) == expected


LARGE = (9 << 30) + 1


class _Start:
    """A sink that accepts the first blocks of a stream only."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> int:
        self.data += data
        if len(self.data) > 4096:
            raise BrokenPipeError
        return len(data)


def test_the_header_of_a_file_above_8_gib_has_its_size(tmp_path: Path) -> None:
    """Octal digits end at 8 GiB. BusyBox's tar, as in Alpine, knows larger sizes from the header
    itself (base 256), but skips the extended headers of PAX: it would create an empty file."""
    source = tmp_path / "sparse"
    with source.open("wb") as file:
        file.truncate(LARGE)

    sink = _Start()
    with pytest.raises(BrokenPipeError):
        pack(source, sink, ignore_progress)  # type: ignore[arg-type]

    first = tarfile.TarInfo.frombuf(sink.data[:512], "utf-8", "surrogateescape")
    assert (first.name, first.type, first.size) == (ROOT, tarfile.REGTYPE, LARGE)


class _Zeros(io.RawIOBase):
    """A header, and as many zeros as its reader asks for."""

    def __init__(self, header: bytes) -> None:
        self._header = header

    def read(self, size: int = -1) -> bytes:
        piece = self._header[:size]
        self._header = self._header[size:]
        return piece or _NOTHING[:size]


_NOTHING = bytes(256 * 1024)


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_file_above_8_gib_is_unpacked(tmp_path: Path, form: int) -> None:
    """As the tar of a session sends it; its zeros take no space on this disk."""
    info = tarfile.TarInfo("top")
    info.size = LARGE
    copied = unpack(
        _Zeros(info.tobuf(form)),  # type: ignore[arg-type]
        tmp_path / "it",
        "top",
        ignore_progress,
        limits=ArchiveLimits(LARGE),
    )
    assert (copied.size, (tmp_path / "it").stat().st_size) == (LARGE, LARGE)
    assert (tmp_path / "it").stat().st_blocks * 512 < 1 << 20
