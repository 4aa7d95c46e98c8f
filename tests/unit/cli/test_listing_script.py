"""The script that lists a directory of a session, in the shells of images, and what is read from its
output."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from moorage.common.copy_scripts import DENIED, LIST_SCRIPT, MISSING, DirectoryListing, read_listing

SHELLS = [
    shell
    for shell in (("dash",), ("bash",), ("busybox", "sh"), ("zsh", "--emulate", "sh"))
    if shutil.which(shell[0])
]
NAMES = (
    b".hidden",
    b"..two dots",
    b"-n",
    b"a\nb",
    b"1/".replace(b"/", b"\xff"),  # not UTF-8
    b"<img src=x onerror=alert(1)>",
    "\u202etxt.exe".encode(),
    b"*",
    b"x" * 255,
)


def listed(
    shell: tuple[str, ...], path: str | Path, limit: int = 1000, path_of: str = ""
) -> tuple[int, bytes, str]:
    env = {**os.environ, "LC_ALL": "C"} | ({"PATH": path_of} if path_of else {})
    program = shutil.which(shell[0])
    assert program is not None
    done = subprocess.run(
        [program, *shell[1:], "-c", LIST_SCRIPT, "sh", str(path), str(limit)],
        capture_output=True,
        check=False,
        env=env,
    )
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for number, name in enumerate(NAMES):
        with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:
            file.write(b"y" * number)
        os.utime(file.name, (0, 1000 + number))

    (tmp_path / "sub").mkdir()
    (tmp_path / "to sub").symlink_to("sub")
    (tmp_path / "to hidden").symlink_to(".hidden")
    (tmp_path / "to nothing").symlink_to("nothing")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_each_name_is_listed_with_what_it_is(shell: tuple[str, ...], directory: Path) -> None:
    code, output, messages = listed(shell, directory)
    assert (code, messages) == (0, "")
    listing = read_listing(output)
    assert (listing.path, listing.complete) == (os.fsencode(directory), True)
    found = {file.name: file for file in listing.files}
    others = {b"sub", b"to sub", b"to hidden", b"to nothing", b"pipe"}
    assert found.keys() == {*NAMES, *others}
    for number, name in enumerate(NAMES):
        file = found[name]
        assert (file.kind, file.link, file.size, file.changed_at) == (
            *("file", False),
            *(number, 1000 + number),
        ), name

    kinds = {name: (found[name].kind, found[name].link) for name in others}
    assert kinds == {
        b"sub": ("directory", False),
        b"to sub": ("directory", True),
        b"to hidden": ("file", True),
        b"to nothing": ("other", True),
        b"pipe": ("other", False),
    }
    assert found[b"to nothing"].size is None
    assert found[b"to hidden"].changed_at == 1000


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_a_long_list_says_that_names_are_left(shell: tuple[str, ...], directory: Path) -> None:
    listing = read_listing(listed(shell, directory, limit=3)[1])
    assert (len(listing.files), listing.complete) == (3, False)
    assert all(file.size is not None for file in listing.files if file.kind == "file")


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_without_stat_only_names_are_known(shell: tuple[str, ...], tmp_path: Path) -> None:
    if shell[0] == "busybox":
        pytest.skip("its stat is part of it")

    (tmp_path / "x").write_text("y")
    listing = read_listing(listed(shell, tmp_path, path_of=str(tmp_path))[1])
    assert [(f.name, f.kind, f.size) for f in listing.files] == [(b"x", "file", None)]


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_what_cannot_be_listed_is_refused(shell: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, output, message = listed(shell, tmp_path / "nothing")
    assert (code, output, message) == (MISSING, b"", f"there is no {tmp_path}/nothing\n")
    code, output, message = listed(shell, tmp_path / "file")
    assert (code, output, message) == (MISSING, b"", f"{tmp_path}/file is not a directory\n")
    if os.geteuid():
        (tmp_path / "closed").mkdir(0o300)
        code, _, message = listed(shell, tmp_path / "closed")
        assert (code, message) == (DENIED, f"{tmp_path}/closed: permission denied\n")


def test_an_empty_directory(tmp_path: Path) -> None:
    assert read_listing(listed(("sh",), tmp_path)[1]) == DirectoryListing(
        os.fsencode(tmp_path), [], True
    )


def test_a_file_that_goes_while_it_is_listed_has_no_size() -> None:
    output = b"/w\0f-a\0f-b\0f-c\0.\0" + b"1/10/./a\n" + b"3/30/./c\n"
    assert [(f.name, f.size) for f in read_listing(output).files] == [
        (b"a", 1),
        (b"b", None),
        (b"c", 3),
    ]


@pytest.mark.parametrize(
    "output", [b"", b"/w", b"/w\0", b"/w\0f-a\0", b"/w\0?-a\0.\0", b"/w\0f-\0.\0"]
)
def test_a_list_that_is_cut_off_is_refused(output: bytes) -> None:
    with pytest.raises(ValueError, match="the list of files"):
        read_listing(output)
