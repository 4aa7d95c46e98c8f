"""Proof that a Unix socket belongs to a manager: who could have created it, and who listens on
it."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moorage.common.local import proof
from moorage.common.local.listening import listen, reserved
from moorage.common.local.paths import leads_here, path_of_unix_url, plain_local_port, socket_path
from moorage.common.local.proof import ProofStep, Unproven, find_problem
from moorage.common.model.errors import ConfigError, StartupError

ME = 1000
DAEMON = 500
STRANGER = 2000
ROOT_DIRECTORY = ProofStep("/", 0, 0o755)
SHARED = ProofStep("/tmp", 0, 0o1777)
is_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="NOT TESTED without root: sockets of another user"
)


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([ProofStep("/var/me", ME, 0o755), ProofStep("/var/me/run", ME, 0o700)], ""),
        ([ProofStep("/var/lib/m", DAEMON, 0o755), ProofStep("/var/lib/m/run", DAEMON, 0o700)], ""),
        (
            [
                ProofStep("/var/me", ME, 0o775, private_group=True),
                ProofStep("/var/me/run", ME, 0o700),
            ],
            "",
        ),
        ([SHARED, ProofStep("/tmp/mine", ME, 0o700, in_shared=True)], ""),
        (
            [
                SHARED,
                ProofStep("/tmp/x", 0, 0o755, in_shared=True),
                ProofStep("/tmp/x/run", DAEMON, 0o700),
            ],
            "",
        ),
        (
            [ProofStep("/var/me", ME, 0o775), ProofStep("/var/me/run", ME, 0o700)],
            "others may write to /var/me ",
        ),
        (
            [ProofStep("/var/me", ME, 0o757), ProofStep("/var/me/run", ME, 0o700)],
            "others may write to /var/me ",
        ),
        (
            [ProofStep("/srv", STRANGER, 0o755), ProofStep("/srv/run", DAEMON, 0o700)],
            "/srv belongs to ",
        ),
        (
            [ProofStep("/srv", ME, 0o755), ProofStep("/srv/run", DAEMON, 0o1777)],
            "others may write to /srv/run ",
        ),
        ([SHARED, ProofStep("/tmp/x", STRANGER, 0o700, in_shared=True)], "/tmp/x belongs to "),
        (
            [
                SHARED,
                ProofStep("/tmp/x", STRANGER, stat.S_IFLNK | 0o777, in_shared=True),
                ProofStep("/y", ME, 0o700),
            ],
            "/tmp/x belongs to ",
        ),
        (
            [ProofStep("/x", STRANGER, stat.S_IFLNK | 0o777), ProofStep("/y", ME, 0o700)],
            "/x belongs to ",
        ),
        ([ProofStep("/x", ME, stat.S_IFLNK | 0o777), ProofStep("/y", ME, 0o700)], ""),
    ],
)
def test_directories_that_others_can_change_prove_nothing(
    steps: list[ProofStep], problem: str
) -> None:
    found = find_problem([ROOT_DIRECTORY, *steps], ME)
    assert found.startswith(problem)
    assert bool(found) is bool(problem)


@contextmanager
def listening_at(path: Path) -> Iterator[socket.socket]:
    with reserved(path) as short:
        listening = listen(short)
        with listening:
            yield listening


def test_a_socket_of_this_user_is_proven(tmp_path: Path) -> None:
    path = socket_path(tmp_path, "manager", 8700)
    with listening_at(path):
        proof.connect(str(path), timeout_s=1).close()
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with pytest.raises(FileNotFoundError):
        proof.connect(str(path), timeout_s=1)


def test_paths_longer_than_the_system_allows_for_sockets(tmp_path: Path) -> None:
    home = tmp_path / ("long-" * 30)
    home.mkdir()
    path = socket_path(home, "link", 8701)
    assert len(str(path)) > 108

    with listening_at(path) as listening:
        with proof.connect(str(path), timeout_s=1) as client:
            served, _ = listening.accept()
            served.sendall(b"here")
            served.close()
            assert client.recv(10) == b"here"

        assert path.is_socket()

    assert not path.exists()


def test_a_link_leads_to_the_socket(tmp_path: Path) -> None:
    """The directories on the link's target path are checked like those on any other path."""
    path = socket_path(tmp_path / "home", "link", 8701)
    path.parent.parent.mkdir()
    (tmp_path / "link").symlink_to("./home/../home")

    with listening_at(path):
        through = str(tmp_path / "link" / "run" / path.name)
        proof.connect(through, timeout_s=1).close()
        path.parent.parent.chmod(0o777)
        with pytest.raises(Unproven, match=r"others may write to .*/home \(mode 0777\)"):
            proof.connect(through, timeout_s=1)


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        proof.connect(str(tmp_path / "a" / "x.sock"), timeout_s=1)


def test_directory_that_the_group_may_write_to(tmp_path: Path) -> None:
    """A group other than its owner's private one."""
    path = socket_path(tmp_path, "manager", 8700)
    with listening_at(path):
        os.chown(tmp_path, -1, 65534 if os.geteuid() == 0 else os.getegid())
        tmp_path.chmod(0o770)
        if os.geteuid() == 0:
            with pytest.raises(Unproven, match="others may write to"):
                proof.connect(str(path), timeout_s=1)


LISTEN_AS = """
import os, socket, sys
path, uid, directory_uid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.chown(os.path.dirname(path), directory_uid, -1)
listening = socket.socket(socket.AF_UNIX)
listening.bind(path)
os.setuid(uid)
listening.listen()  # by whom, is what counts
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def squatter(path: Path, *, uid: int, directory_uid: int, mode: int = 0o755) -> Iterator[None]:
    """A program of user ``uid`` that listens in a directory owned by ``directory_uid``."""
    path.parent.mkdir(parents=True)
    command = [sys.executable, "-I", "-c", LISTEN_AS, str(path), str(uid), str(directory_uid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"ready\n"
        path.parent.chmod(mode)
        yield
        process.stdin.close()


@is_root
def test_a_stranger_who_listens_in_a_directory_of_ours_gets_nothing(tmp_path: Path) -> None:
    path = socket_path(tmp_path, "manager", 8700)
    with (
        squatter(path, uid=54321, directory_uid=0),
        pytest.raises(
            Unproven, match=r"uid 54321 listens there, and the directory belongs to user root"
        ),
    ):
        proof.connect(str(path), timeout_s=1)


@is_root
def test_the_owner_of_the_directory_is_the_manager(tmp_path: Path) -> None:
    path = socket_path(tmp_path, "manager", 8700)
    with squatter(path, uid=54321, directory_uid=54321):
        proof.connect(str(path), timeout_s=1).close()


@is_root
def test_a_directory_that_a_stranger_made_in_a_shared_one_is_none(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    path = shared / "run" / "manager-8700.sock"
    with squatter(path, uid=54321, directory_uid=54321):
        shared.chmod(0o1777)
        with pytest.raises(Unproven, match="run belongs to uid 54321"):
            proof.connect(str(path), timeout_s=1)


@is_root
def test_a_stranger_s_link_leads_nowhere(tmp_path: Path) -> None:
    """In ``/tmp``, the link's owner could point it elsewhere."""
    path = socket_path(tmp_path / "home", "manager", 8700)
    path.parent.parent.mkdir(mode=0o711)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    link = shared / "link"
    link.symlink_to(path.parent)

    with listening_at(path):
        proof.connect(str(link / path.name), timeout_s=1).close()
        os.lchown(link, 54321, -1)
        with pytest.raises(Unproven, match="link belongs to uid 54321"):
            proof.connect(str(link / path.name), timeout_s=1)


def test_what_a_killed_manager_left_is_replaced(tmp_path: Path) -> None:
    path = socket_path(tmp_path, "manager", 8700)
    path.parent.mkdir(mode=0o700)
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    with pytest.raises(ConnectionRefusedError):
        proof.connect(str(path), timeout_s=1)
    with listening_at(path):
        proof.connect(str(path), timeout_s=1).close()


def test_the_socket_of_a_running_manager_is_not_replaced(tmp_path: Path) -> None:
    path = socket_path(tmp_path, "manager", 8700)
    with listening_at(path):
        with pytest.raises(StartupError, match="another manager listens at"), reserved(path):
            pass
        proof.connect(str(path), timeout_s=1).close()


def test_a_directory_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    """It is not changed, because it may not be what it seems, such as ``/run``."""
    path = socket_path(tmp_path, "manager", 8700)
    path.parent.mkdir()
    path.parent.chmod(0o755)

    with (
        pytest.raises(StartupError, match=r"others may enter .*/run \(mode 0755\)"),
        reserved(path),
    ):
        pass

    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755


def test_a_link_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to("elsewhere")
    path = socket_path(tmp_path, "manager", 8700)
    with pytest.raises(StartupError, match="is not a directory of this user"), reserved(path):
        pass


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("127.0.0.1", True), ("127.8.7.6", True), ("127.1", True), ("2130706433", True), ("0x7f.1", True),
        ("localhost", True), ("LOCALHOST.", True), ("api.localhost", True), ("::1", True), ("[::1]", True),
        ("::ffff:127.0.0.1", True), ("0.0.0.0", True), ("::", True), ("0", True),
        ("192.0.2.1", False), ("moorage.example.org", False), ("localhost.example.org", False), ("", False),
        ("2001:db8::1", False), ("128.0.0.1", False),
    ],
)  # fmt: skip
def test_hosts_that_lead_here(host: str, here: bool) -> None:
    assert leads_here(host) is here


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("http://127.0.0.1:8700", 8700),
        ("HTTP://localhost:8700/", 8700),
        ("http://[::1]:8700", 8700),
        ("http://me@127.0.0.1:8700", 8700),
        ("http://localhost", 80),
        ("http://127.0.0.1:0", 0),
        ("https://127.0.0.1:8700", None),
        ("http://192.0.2.1:8700", None),
        ("unix:///run/m.sock", None),
        ("http://127.0.0.1:x", None),
    ],
)
def test_ports_that_could_be_anybodys(url: str, port: int | None) -> None:
    assert plain_local_port(url) == port


def test_unix_urls_have_an_absolute_path() -> None:
    assert path_of_unix_url("unix:///run/m.sock") == "/run/m.sock"
    assert path_of_unix_url("http://127.0.0.1") is None
    for url in ("unix://", "unix://run/m.sock", "unix:///a\0b"):
        with pytest.raises(ConfigError, match="has no absolute path"):
            path_of_unix_url(url)
