"""The scripts of a copy in a session: the one that receives removes a partial copy, whatever stops
it and when; the one that sends copes with files that change."""

import io
import os
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from moorage.common.archive import ArchiveLimits, unpack
from moorage.common.copy_scripts import RECEIVE_SCRIPT, SEND_SCRIPT

# Its process group gets the signal as `rm` starts, as from an agent that closes the input first.
_RM = """#!/bin/sh
kill -s {signal} 0
exec /bin/rm "$@"
"""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM])
def test_a_partial_copy_is_removed_by_a_script_that_is_signalled(
    tmp_path: Path, number: signal.Signals
) -> None:
    programs = tmp_path / "programs"
    into = tmp_path / "into"
    programs.mkdir()
    into.mkdir()
    rm = programs / "rm"
    rm.write_text(_RM.format(signal=number.name.removeprefix("SIG")))
    rm.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", RECEIVE_SCRIPT, "sh", str(into), "copied", "id"],
        input=b"no archive" * 100,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        start_new_session=True,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode != 0
    assert list(into.iterdir()) == []


# Stands for a tar that reads while a program writes.
_TAR = """#!/bin/sh
case $1 in --version) {version};; esac
/bin/tar "$@"
echo "tar: ./log: file changed as we read it" >&2
exit {code}
"""


@pytest.mark.parametrize(
    ("version", "code", "expected"),
    [
        ('exec echo "tar (GNU tar) 1.34"', 1, 0),
        ('exec echo "tar (GNU tar) 1.34"', 2, 2),
        ('echo "unrecognized option" >&2; exit 1', 1, 1),
    ],
)
def test_a_file_that_grows_is_copied(
    tmp_path: Path, version: str, code: int, expected: int
) -> None:
    """As it was when its header was written. Other failures of tar stay failures."""
    programs = tmp_path / "programs"
    programs.mkdir()
    tar = programs / "tar"
    tar.write_text(_TAR.format(version=version, code=code))
    tar.chmod(0o755)
    (tmp_path / "log").write_bytes(b"line\n")
    done = subprocess.run(
        ["sh", "-c", SEND_SCRIPT, "sh", str(tmp_path / "log")],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == expected
    assert b"file changed as we read it" in done.stderr
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as stream:
        assert stream.getnames() == ["./log"]


@pytest.mark.parametrize("ends", [b"end", b""])
def test_sparse_files_stay_sparse(tmp_path: Path, ends: bytes) -> None:
    size = 64 * 1024**2
    with (tmp_path / "sparse").open("wb") as file:
        file.write(b"begin")
        file.seek(size)
        file.write(ends)
        file.truncate()

    with subprocess.Popen(
        ["sh", "-c", SEND_SCRIPT, "sh", str(tmp_path / "sparse")], stdout=subprocess.PIPE
    ) as sending:
        assert sending.stdout is not None
        copied = unpack(
            sending.stdout, tmp_path / "copy", "", lambda _: None, limits=ArchiveLimits(2 * size)
        )

    assert copied.size == size + len(ends)
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "sparse").read_bytes()
    assert (tmp_path / "copy").stat().st_blocks * 512 < 1024**2
