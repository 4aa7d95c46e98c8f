"""Managers on this host: commands reach them through the managers' Unix sockets, and disclose
nothing to other programs."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_manager import KEY, FakeManager
from invoke import Run

from moorage.common.local.listening import listen, reserved
from moorage.common.local.paths import socket_path
from moorage.common.local.proof import Unproven
from moorage.common.model.errors import ConfigError
from moorage.common.model.spec import SessionSpec
from moorage.sdk import Client, SyncClient
from moorage.sdk.installation.connection import find_connection
from moorage.sdk.installation.contexts import Context, Contexts, write_contexts
from moorage.sdk.installation.saved_files import read_contexts

# Commands that use plain reads, the SDK's client, its streams, and its WebSockets.
COMMANDS = (
    ("ps",),
    ("ps", "-o", "json"),
    ("describe", "dev"),
    ("logs", "dev"),
    ("logs", "-f", "dev"),
    ("exec", "-i", "dev", "--", "cat"),
    ("keys", "list"),
    ("stop", "dev"),
)
SECURE: dict[str, str | None] = {"MOORAGE_INSECURE_LOOPBACK": None}


class Squatter:
    """A foreign program that has taken a port. ``heard``: the data sent there."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.heard = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with client:
                self.heard += b"(connected)" + client.recv(65536)
                client.sendall(b"HTTP/1.1 500 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@pytest.fixture
def squatter() -> Iterator[Squatter]:
    taken = Squatter()
    yield taken
    taken.close()


@pytest.fixture
def home(tmp_path: Path, squatter: Squatter) -> Path:
    """A state directory as `moorage up` left it; a foreign program has since taken the port."""
    made = tmp_path / "home"
    made.mkdir(mode=0o700)
    saved = {"url": squatter.url, "socket": str(socket_path(made, "manager", squatter.port))}
    (made / "connection.json").write_text(json.dumps(saved))
    (made / "admin-key").write_text(KEY)
    return made


@pytest.fixture
def local(manager: FakeManager, home: Path, squatter: Squatter) -> Iterator[str]:
    """The manager listens only on its socket. Returns its URL."""
    manager.add_session(SessionSpec(name="dev", command=["true"], resources={"cpu": 1}))
    path = socket_path(home, "manager", squatter.port)
    with reserved(path) as short:
        manager.listen_on(listen(short))
        yield f"unix://{path}"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_reach_the_manager_by_its_socket(
    local: str, squatter: Squatter, moorage: Run, command: tuple[str, ...]
) -> None:
    done = moorage(*command, MOORAGE_URL=None, MOORAGE_API_KEY=None, **SECURE)
    assert (done.exit_code, done.stderr) == (7 if command[0] == "exec" else 0, ""), done.stderr
    assert squatter.heard == b""


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("way", ["saved", "--url", "context", "another port"])
def test_whoever_took_the_port_of_a_manager_gets_nothing(
    home: Path, squatter: Squatter, moorage: Run, command: tuple[str, ...], way: str
) -> None:
    variables: dict[str, str | None] = {"MOORAGE_URL": None, "MOORAGE_API_KEY": None, **SECURE}
    options: tuple[str, ...] = ()
    if way == "context":
        write_contexts(
            home, Contexts("here", {"here": Context(squatter.url, "", str(home / "admin-key"))})
        )
    elif way != "saved":
        options = "--url", squatter.url

    if way == "another port":
        (home / "connection.json").unlink()

    refused = moorage(*options, *command, **variables)
    assert refused.exit_code not in (0, 3)
    expected = (
        "cannot prove that it is a manager"
        if way == "another port"
        else "no manager answers at unix:///"
    )
    assert expected in refused.stderr
    assert squatter.heard == b""


def test_whoever_says_so_sends_the_key_to_what_listens(
    home: Path, squatter: Squatter, moorage: Run
) -> None:
    moorage("ps", "--url", squatter.url, MOORAGE_API_KEY=None, MOORAGE_INSECURE_LOOPBACK="1")
    assert KEY.encode() in squatter.heard


def test_completion_says_nothing_to_whoever_took_the_port(
    home: Path, squatter: Squatter, moorage: Run
) -> None:
    completed = moorage(
        _MOORAGE_COMPLETE="complete_bash", COMP_WORDS="moorage stop ", COMP_CWORD="2",
        MOORAGE_URL=None, MOORAGE_API_KEY=None, **SECURE,
    )  # fmt: skip
    assert (completed.stdout.strip(), completed.stderr, squatter.heard) == ("", "", b"")


@pytest.mark.parametrize(
    ("url", "found"),
    [
        (None, "unix://{home}/run/manager-8700.sock"),
        ("http://127.0.0.1:8700", "unix://{home}/run/manager-8700.sock"),
        ("http://127.0.0.1:8700/", "unix://{home}/run/manager-8700.sock"),
        ("http://localhost:8700", "unix://{home}/run/manager-8700.sock"),
        ("unix:///elsewhere.sock", "unix:///elsewhere.sock"),
        ("http://127.0.0.1:8701", "unix://{home}/run/manager-8701.sock"),
        ("https://127.0.0.1:8700", "https://127.0.0.1:8700"),
        ("http://192.0.2.1:8700", "http://192.0.2.1:8700"),
        ("http://127.0.0.1:9999", ""),
        ("http://[::1]:9999", ""),
        ("http://127.1:9999", ""),
        ("http://0.0.0.0:9999", ""),
        ("http://127.0.0.1:8700/prefix", ""),
    ],
)
@pytest.mark.parametrize("insecure", ["", "0", "1"])
def test_which_manager_is_meant(tmp_path: Path, url: str | None, found: str, insecure: str) -> None:
    """A manager of this state directory listens on 8701; nothing is saved."""
    env = {"MOORAGE_HOME": str(tmp_path), "MOORAGE_INSECURE_LOOPBACK": insecure}
    with reserved(socket_path(tmp_path, "manager", 8701)) as short, listen(short):
        if insecure == "1":
            assert find_connection(env, url=url).url == (url or "http://127.0.0.1:8700")
        elif found:
            assert find_connection(env, url=url).url == found.format(home=tmp_path)
        else:
            with pytest.raises(ConfigError, match="MOORAGE_INSECURE_LOOPBACK=1"):
                find_connection(env, url=url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8700", "http://localhost:8700/"])
def test_another_user_of_the_host_learns_whose_manager_it_is(tmp_path: Path, url: str) -> None:
    env = {"MOORAGE_HOME": str(tmp_path)}
    with pytest.raises(ConfigError, match=f"is not the manager of {tmp_path}"):
        find_connection(env, url=url)


@pytest.mark.parametrize(
    ("saved", "found"),
    [
        ({"url": "http://192.0.2.1:1", "socket": "/x.sock"}, "unix:///x.sock"),
        ({"url": "http://127.0.0.1:1", "socket": "/x.sock"}, "unix:///x.sock"),
        ({"url": "http://127.0.0.1:1"}, "unix://{home}/run/manager-1.sock"),
        ({"url": "https://127.0.0.1:1", "socket": "/old.sock"}, "https://127.0.0.1:1"),
        ({"url": "http://192.0.2.1:1", "socket": ""}, "http://192.0.2.1:1"),
    ],
)
def test_saved_addresses(tmp_path: Path, saved: dict[str, str], found: str) -> None:
    (tmp_path / "connection.json").write_text(json.dumps(saved))
    at = find_connection({"MOORAGE_HOME": str(tmp_path)})
    assert at.url == found.format(home=tmp_path)
    assert at.http_url == saved["url"]


def test_a_context_of_this_manager_gets_its_socket_once_it_has_answered(
    local: str, home: Path, squatter: Squatter, moorage: Run
) -> None:
    site = Context(squatter.url, "http://127.0.0.1:1/v1", str(home / "admin-key"))
    write_contexts(home, Contexts("here", {"here": site}))
    wrong = moorage("keys", "list", MOORAGE_URL=None, MOORAGE_API_KEY="mg-wrong", **SECURE)
    assert wrong.exit_code != 0
    assert read_contexts(home).saved["here"] == site, "another installation may have had this port"
    assert moorage("keys", "list", MOORAGE_URL=None, MOORAGE_API_KEY=None, **SECURE).exit_code == 0
    assert read_contexts(home).saved["here"] == Context(local, site.openai_url, site.key_file)
    for url in (None, squatter.url):
        again = moorage("keys", "list", MOORAGE_URL=url, MOORAGE_API_KEY=None, **SECURE)
        assert again.exit_code == 0

    used = find_connection({"MOORAGE_HOME": str(home)})
    assert (used.url, used.http_url) == (local, squatter.url), (
        "others join at an address that they reach"
    )


def test_a_context_is_added_with_the_socket_or_not_at_all(
    local: str, squatter: Squatter, home: Path, moorage: Run
) -> None:
    added = moorage("contexts", "add", "here", "--url", squatter.url, stdin=f"{KEY}\n", **SECURE)
    assert added.exit_code == 0, added.stderr
    assert read_contexts(home).saved["here"].url == local
    refused = moorage(
        "contexts", "add", "tunnel", "--url", "http://localhost:1", stdin="x\n", **SECURE
    )
    assert "cannot prove that it is a manager" in refused.stderr
    tunnel = ("contexts", "add", "tunnel", "--url", "http://localhost:1")
    assert moorage(*tunnel, stdin="x\n", MOORAGE_INSECURE_LOOPBACK="1").exit_code == 0
    assert read_contexts(home).saved["tunnel"].url == "http://localhost:1"


async def test_clients_of_the_sdk_reach_the_manager_by_its_socket(local: str) -> None:
    async with Client(local, KEY) as client:
        assert [one.name for one in await client.sessions.list()] == ["dev"]
        assert client.url == local


def test_clients_without_asyncio_do_too(local: str) -> None:
    with SyncClient(local, KEY) as client:
        assert [one.name for one in client.sessions.list()] == ["dev"]


@pytest.mark.skipif(
    os.geteuid() != 0, reason="NOT TESTED without root: directories of another user"
)
@pytest.mark.parametrize("command", [("ps", "-o", "json"), ("keys", "list"), ("logs", "-f", "dev")])
def test_a_directory_that_others_may_write_to_proves_nothing(
    local: str, manager: FakeManager, home: Path, moorage: Run, command: tuple[str, ...]
) -> None:
    home.chmod(0o777)
    manager.requests.clear()
    refused = moorage(*command, MOORAGE_URL=None, MOORAGE_API_KEY=None, **SECURE)
    assert f"nothing secret is sent to {local.removeprefix('unix://')}" in refused.stderr
    assert "chmod go-w" in refused.stderr
    assert manager.requests == []


async def test_streams_of_the_client_prove_the_manager_too(
    local: str, manager: FakeManager, home: Path
) -> None:
    """They have their own connections."""
    home.chmod(0o777)
    async with Client(local, KEY) as client:
        with pytest.raises(Unproven, match="others may write to"):
            await client.http.get(client.address("/v1/sessions", {}))
    assert manager.requests == []
