"""Archives that a hostile session sends to ``moorage cp``, in one copy or spread over several."""

from __future__ import annotations

import gc
import io
import os
import pathlib
import tarfile
import tempfile
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.agent.runtimes.docker.files import first_file_text, owner_of
from moorage.common.archive import ArchiveLimits, UnsafeArchive, install, stays_inside, unpack

DIR = tarfile.DIRTYPE
FILE = tarfile.REGTYPE
LINK = tarfile.SYMTYPE
HARD = tarfile.LNKTYPE
LIMITS = ArchiveLimits(size=100_000, entries=50)
MIB = 1024 * 1024


def header(name: str, kind: bytes = FILE, *, link: str = "", size: int = 0) -> bytes:
    """The header of an entry, with any size; the data does not follow."""
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = link
    info.size = size
    info.mode = 0o755
    return info.tobuf(tarfile.GNU_FORMAT)


def sparse(name: str, size: int) -> bytes:
    """An entry in GNU's old sparse format that claims ``size`` bytes and has none of them."""
    raw = bytearray(header(name, tarfile.GNUTYPE_SPARSE))
    raw[483:495] = tarfile.itn(size, 12, tarfile.GNU_FORMAT)  # type: ignore[attr-defined]
    raw[148:156] = b"        "
    raw[148:156] = f"{sum(raw):06o}\0 ".encode()
    return bytes(raw)


def pax(records: dict[str, str], *after: bytes) -> bytes:
    info = tarfile.TarInfo("top/x")
    return info.create_pax_global_header(records) + b"".join(after)


def forever(piece: bytes) -> Iterable[bytes]:
    while True:
        yield piece


class Stream(io.RawIOBase):
    """A stream that is never completely in memory, as from a session."""

    def __init__(self, *pieces: bytes, then: Iterable[bytes] = ()) -> None:
        self._rest = b"".join(pieces)
        self._then = iter(then)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        if not self._rest:
            self._rest = next(self._then, b"")
        size = min(len(view), len(self._rest))
        view[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


ZEROS = b"\0" * 65536
TOP = header("top", DIR)
HOSTILE: dict[str, Callable[[], Stream]] = {
    "absolute name": lambda: Stream(TOP, header("/tmp/planted")),
    "parent": lambda: Stream(TOP, header("top/../../planted")),
    "another entry": lambda: Stream(TOP, header("planted")),
    "file through a link": lambda: Stream(TOP, header("top/l", LINK, link=".."), header("top/l/planted")),
    "link as the copy": lambda: Stream(header("top", LINK, link=".."), header("top/planted")),
    "hard link out": lambda: Stream(TOP, header("top/h", HARD, link="../secret")),
    "hard link to an absolute name": lambda: Stream(TOP, header("top/h", HARD, link="/etc/passwd")),
    "hard link to nothing": lambda: Stream(TOP, header("top/h", HARD, link="top/none")),
    "hard link to a link": lambda: Stream(
        TOP, header("top/l", LINK, link="x"), header("top/h", HARD, link="top/l")
    ),
    "the same file twice": lambda: Stream(TOP, header("top/a"), header("top/a")),
    "the same link twice": lambda: Stream(TOP, *[header("top/a", LINK, link="x")] * 2),
    "file, then below it": lambda: Stream(TOP, header("top/a"), header("top/a/b")),
    "no directory for a file": lambda: Stream(TOP, header("top/none/b")),
    "no directory for a link": lambda: Stream(TOP, header("top/none/b", LINK, link="x")),
    "link over a directory": lambda: Stream(TOP, header("top/d", DIR), header("top/d", LINK, link="x")),
    "more bytes than allowed": lambda: Stream(TOP, header("top/a", size=200_000), then=forever(ZEROS)),
    "many files that are too large together": lambda: Stream(
        TOP, *(header(f"top/{n}", size=40_448) + b"x" * 40_448 for n in range(3))
    ),
    "sparse bomb": lambda: Stream(TOP, sparse("top/a", 1 << 50), ZEROS),
    "negative size": lambda: Stream(TOP, header("top/a", size=-512)),
    "too many entries": lambda: Stream(TOP, *(header(f"top/{n}") for n in range(60))),
    "too deep": lambda: Stream(header("top" + "/d" * 200, DIR)),
    "a name without end": lambda: Stream(header("x", b"L", size=1 << 40), then=forever(b"a" * 65536)),
    "a link without end": lambda: Stream(header("x", b"K", size=1 << 40), then=forever(b"a" * 65536)),
    "a pax record without end": lambda: Stream(header("x", b"x", size=1 << 40), then=forever(b"9" * 65536)),
    "headers of headers": lambda: Stream(then=forever(header("x", b"L", size=512) + b"a" * 512)),
    "pax headers of pax headers": lambda: Stream(then=forever(header("x", b"x"))),
    "a sparse map without end": lambda: Stream(
        pax({"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "top/a"}),
        header("top/a", size=1 << 40), b"99999999999\n", then=forever(b"1\n" * 32768),
    ),
    "a NUL in a link": lambda: Stream(TOP, pax({"linkpath": "a\0b"}), header("top/l", HARD, link="x")),
    "a path of 5000 characters": lambda: Stream(TOP, pax({"path": "top/" + "x" * 5000}), header("top/x")),
    "noise": lambda: Stream(os.urandom(100_000)),
    "the end is missing": lambda: Stream(TOP, header("top/a", size=5000), b"x" * 100),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_and_touches_nothing(name: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    staging = tmp_path / "home" / "staging"
    staging.mkdir(parents=True)
    (tmp_path / "secret").write_text("s")
    tracemalloc.start()

    try:
        with pytest.raises(UnsafeArchive):
            unpack(HOSTILE[name](), staging / "it", "top", lambda _: None, limits=LIMITS)  # type: ignore[arg-type]
        assert tracemalloc.get_traced_memory()[1] < 32 * MIB
    finally:
        tracemalloc.stop()

    assert sorted(p.name for p in tmp_path.iterdir()) == ["home", "secret"]
    assert (tmp_path / "secret").stat().st_nlink == 1
    assert list(home.iterdir()) == [staging]
    assert not Path("/tmp/planted").exists()


def test_directories_above_each_other_are_limited(tmp_path: Path) -> None:
    sent: object = Stream(*(header("top" + "/d" * depth, DIR) for depth in range(130)))
    with pytest.raises(UnsafeArchive, match="128 directories"):
        unpack(sent, tmp_path / "it", "top", lambda _: None, limits=ArchiveLimits(0, entries=1000))  # type: ignore[arg-type]


def test_memory_does_not_grow_with_the_entries(tmp_path: Path) -> None:
    held: list[int] = []

    def entries() -> Iterable[bytes]:
        yield from (header(f"top/{n}", tarfile.FIFOTYPE) for n in range(4000))
        gc.collect()
        # This avoids pathlib, which interns all names: the table of interned names grows by
        # megabytes at a time.
        traces = tracemalloc.take_snapshot().filter_traces(
            [tracemalloc.Filter(False, pathlib.__file__)]
        )
        held.append(sum(trace.size for trace in traces.traces))

    sent: object = Stream(TOP, then=entries())
    tracemalloc.start()
    try:
        unpack(sent, tmp_path / "it", "top", lambda _: None, limits=ArchiveLimits(0, entries=5000))  # type: ignore[arg-type]
    finally:
        tracemalloc.stop()

    assert held[0] < MIB


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_are_left_out(kind: bytes, tmp_path: Path) -> None:
    sent: object = Stream(TOP, header("top/device", kind), header("top/file"))
    copied = unpack(sent, tmp_path / "it", "top", lambda _: None, limits=LIMITS)  # type: ignore[arg-type]
    assert copied.skipped == ["device is not a file or directory"]
    assert [p.name for p in (tmp_path / "it").iterdir()] == ["file"]


def test_time_stamps_and_modes_that_no_file_can_have(tmp_path: Path) -> None:
    for mtime in ("99999999999999999999999", "nan", "-inf"):
        sent: object = Stream(TOP, pax({"mtime": mtime}), header("top/a"))
        into = tmp_path / mtime
        try:
            unpack(sent, into, "top", lambda _: None, limits=LIMITS)  # type: ignore[arg-type]
        except UnsafeArchive:
            continue
        assert (into / "a").is_file()


# Several copies into one target: the files that the first one leaves must not lead the next one
# outside.
NAMES = st.sampled_from(["a", "b", "a/b", "b/a", "a/a", "a/b/a"])
TARGETS = st.lists(st.sampled_from(["..", ".", "a", "b", "outside"]), min_size=1, max_size=4).map(
    "/".join
)
ENTRIES = st.lists(
    st.one_of(
        st.tuples(NAMES, st.just(DIR), st.just("")),
        st.tuples(NAMES, st.just(FILE), st.just("")),
        st.tuples(NAMES, st.just(LINK), TARGETS | st.just("/outside")),
        st.tuples(NAMES, st.just(HARD), NAMES.map("top/".__add__)),
    ),
    max_size=5,
)


@examples(150)
@given(st.lists(ENTRIES, min_size=1, max_size=3))
def test_no_sequence_of_copies_leaves_the_target(
    copies: list[list[tuple[str, bytes, str]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        target = root / "home" / "target"
        outside = root / "home" / "outside"
        for place in (target, outside, root / "staging"):
            place.mkdir(parents=True)

        (outside / "a").mkdir()
        for number, entries in enumerate(copies):
            staged = root / "staging" / str(number)
            stream: object = Stream(
                TOP, *(header(f"top/{name}", kind, link=link) for name, kind, link in entries)
            )
            try:
                unpack(stream, staged, "top", lambda _: None, limits=LIMITS)  # type: ignore[arg-type]
                install(staged, target)
            except (UnsafeArchive, OSError):
                pass  # a merge that stops halfway must also be safe

        assert [str(p.relative_to(outside)) for p in outside.rglob("*")] == ["a"]
        assert sorted(p.name for p in (root / "home").iterdir()) == ["outside", "target"]
        for path in target.rglob("*"):
            if path.is_symlink():
                assert Path(os.path.realpath(path)).is_relative_to(target), f"{path} leads out"


@pytest.mark.parametrize(
    ("parts", "link", "inside"),
    [
        (("l",), "a/b", True), (("d", "l"), "../a", True), (("d", "l"), "./../a/./b", True),
        (("l",), "..", False), (("d", "l"), "../..", False), (("l",), "/a", False), (("l",), "", False),
        (("l",), "a/../b", False), (("d", "l"), "a/../b", False),
        (("d", "l"), "x/../../..", False), ((), "a", False),
        (("l",), "a\0", False),
    ],
)  # fmt: skip
def test_links_may_climb_only_at_their_beginning(
    parts: tuple[str, ...], link: str, inside: bool
) -> None:
    assert stays_inside(parts, link) is inside


def test_install_replaces_links_of_an_earlier_copy(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    target = tmp_path / "target"
    outside.mkdir()
    target.mkdir()
    (target / "l").symlink_to(outside)
    (target / "f").symlink_to(outside / "planted")
    source = tmp_path / "source"
    (source / "l").mkdir(parents=True)
    (source / "l" / "planted").touch()
    (source / "f").touch()
    install(source, target)
    assert list(outside.iterdir()) == []
    assert (target / "l" / "planted").is_file()
    assert not (target / "l").is_symlink()
    assert not (target / "f").is_symlink()
    (tmp_path / "named").symlink_to(outside)
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "planted").touch()
    with pytest.raises(OSError, match="named"):
        install(tmp_path / "again", tmp_path / "named" / "below")

    install(tmp_path / "again", tmp_path / "named")
    assert list(outside.iterdir()) == []


def test_the_password_file_of_an_image_is_read_within_limits() -> None:
    whole = tarfile.TarInfo("passwd")
    text = b"app:x:1001:1002::/:/bin/sh\n"
    whole.size = len(text)
    sent = whole.tobuf() + text.ljust(512, b"\0") + b"\0" * 1024
    assert owner_of("app", first_file_text([sent[:700], sent[700:]])) == (1001, 1002)

    for pieces in (
        (header("passwd", size=1 << 40), *[ZEROS] * 32),
        (header("passwd", LINK, link="/etc/shadow"),),
        (header("x", b"L", size=1 << 40), *[ZEROS] * 32),
        (os.urandom(10_000),),
        (),
    ):
        assert first_file_text(pieces) == ""

    assert first_file_text(forever(ZEROS)) == ""
    for user, passwd in (
        ("²", ""),
        ("app", "app:x:²:-1"),
        ("app", "app:x:99999999999:x"),
        ("1:²", ""),
    ):
        assert all(0 <= number < 1 << 32 for number in owner_of(user, passwd))
