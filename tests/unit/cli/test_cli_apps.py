"""``open``, ``port-forward``, and the service ports that ``start`` and ``run`` declare."""

from __future__ import annotations

import json

import pytest
from fake_manager import FakeManager
from invoke import Run

from moorage.common.model.spec import Port, SessionSpec
from moorage.common.model.status import SessionType, Status

JUPYTER = Port(name="jupyter")
DB = Port(name="db", protocol="tcp")


def add_lab(manager: FakeManager, *ports: Port, status: Status = Status.RUNNING) -> str:
    """Add a session that has these service ports. Returns its id."""
    spec = SessionSpec(name="lab", type=SessionType.INTERACTIVE, command=["x"], ports=list(ports))
    return manager.add_session(spec, status=status, script=[]).id


def test_open_prints_an_address_with_a_new_access_token(manager: FakeManager, moorage: Run) -> None:
    session_id = add_lab(manager, JUPYTER, DB)
    base = f"{manager.openai_url.removesuffix('/v1')}/apps/{session_id}/jupyter/?access_token="
    result = moorage("open", "lab", "--lifetime", "1m")
    assert result.exit_code == 0
    assert result.stdout.startswith(base)
    (created,) = manager.store.access_tokens.views.values()
    assert (created.expires_at - created.created_at).total_seconds() == 60
    assert result.stdout.removeprefix(base).startswith(created.prefix)
    answer = json.loads(moorage("open", "lab", "jupyter", "-o", "json").stdout)
    assert (answer["app"], answer["ready"]) == ("jupyter", True)
    assert answer["url"].startswith(base)


def test_open_warns_about_a_session_that_is_not_running(manager: FakeManager, moorage: Run) -> None:
    add_lab(manager, JUPYTER, status=Status.PENDING)
    result = moorage("open", "lab")
    assert result.exit_code == 0
    assert "is not running yet" in result.stderr


@pytest.mark.parametrize(
    ("ports", "args", "expected"),
    [
        ([], ["lab"], "has no service port"),
        ([JUPYTER], ["lab", "other"], "it has: jupyter"),
        ([JUPYTER, Port(name="board")], ["lab"], "name one: jupyter, board"),
        ([DB], ["lab"], "moorage port-forward lab db"),
    ],
)
def test_open_refuses_and_creates_no_access_token(
    manager: FakeManager, moorage: Run, ports: list[Port], args: list[str], expected: str
) -> None:
    add_lab(manager, *ports)
    result = moorage("open", *args)
    assert result.exit_code != 0
    assert expected in result.stderr
    assert manager.store.access_tokens.views == {}


def test_occupied_local_port_leaves_no_access_token(manager: FakeManager, moorage: Run) -> None:
    add_lab(manager, DB)
    port = manager.url.rpartition(":")[2]
    result = moorage("port-forward", "lab", "db", port)
    assert result.exit_code != 0
    assert f"cannot listen on local port {port}" in result.stderr
    assert manager.store.access_tokens.views == {}


def test_start_prints_the_commands_for_its_ports(manager: FakeManager, moorage: Run) -> None:
    result = moorage("start", "--name", "lab", "--port", "jupyter", "--port", "db/tcp", "--", "x")
    assert "moorage open lab jupyter" in result.stderr
    assert "moorage port-forward lab db" in result.stderr


@pytest.mark.parametrize("verb", ["start", "run"])
def test_ports_are_declared_in_the_spec(manager: FakeManager, moorage: Run, verb: str) -> None:
    args = ["--port", "jupyter+path+key", "--port", "db/tcp", "--no-wait", "--", "x"]
    assert moorage(verb, *args).exit_code == 0
    (one,) = manager.sessions
    jupyter, db = one.spec.ports
    assert (jupyter.name, jupyter.protocol, jupyter.base_path, jupyter.guarded) == (
        "jupyter",
        "http",
        True,
        True,
    )
    assert (db.name, db.protocol, db.port) == ("db", "tcp", None)
    result = moorage(verb, "--port", "Bad!", "--no-wait", "--", "x")
    assert result.exit_code != 0
    assert "write it like" in result.stderr or "small letters" in result.stderr
