"""``open``, ``port-forward``, and the service ports that ``start`` and ``run`` declare."""

from __future__ import annotations

import json

import pytest
from invoke import Run
from played_apps import ACCESS_TOKEN
from rest_manager import RestManager

from moorage.common.views.access_tokens import AppView

LAB = AppView(name="jupyter", protocol="http", ready=True, path="/apps/id-lab/jupyter")
DB = AppView(name="db", protocol="tcp", ready=True, path="/apps/id-lab/db")


def test_open_prints_an_address_with_a_fresh_access_token(manager: RestManager, moorage: Run) -> None:
    manager.offered.apps["lab"] = [LAB, DB]
    at = manager.openai_url.removesuffix("/v1")
    result = moorage("open", "lab", "--lifetime", "1m")
    assert (result.exit_code, result.stdout) == (
        0,
        f"{at}/apps/id-lab/jupyter/?access_token={ACCESS_TOKEN}\n",
    )
    (made,) = manager.offered.access_tokens
    assert (made.expires_at - made.created_at).total_seconds() == 60
    told = json.loads(moorage("open", "lab", "jupyter", "-o", "json").stdout)
    assert told == {
        "app": "jupyter",
        "url": f"{at}/apps/id-lab/jupyter/?access_token={ACCESS_TOKEN}",
        "ready": True,
    }


def test_open_says_when_it_is_too_early(manager: RestManager, moorage: Run) -> None:
    manager.offered.apps["lab"] = [LAB.model_copy(update={"ready": False})]
    result = moorage("open", "lab")
    assert result.exit_code == 0
    assert "does not run yet" in result.stderr


@pytest.mark.parametrize(
    ("apps", "words", "told"),
    [
        ([], ["lab"], "has no service port"),
        ([LAB], ["lab", "other"], "it has: jupyter"),
        ([LAB, LAB.model_copy(update={"name": "board"})], ["lab"], "name one: jupyter, board"),
        ([DB], ["lab"], "moorage port-forward lab db"),
    ],
)
def test_open_that_cannot_be(
    manager: RestManager, moorage: Run, apps: list[AppView], words: list[str], told: str
) -> None:
    manager.offered.apps["lab"] = apps
    result = moorage("open", *words)
    assert result.exit_code != 0
    assert told in result.stderr
    assert manager.offered.access_tokens == []


def test_a_local_port_that_is_taken_leaves_no_access_token(manager: RestManager, moorage: Run) -> None:
    manager.offered.apps["lab"] = [DB]
    taken = manager.url.rpartition(":")[2]
    result = moorage("port-forward", "lab", "db", taken)
    assert result.exit_code != 0
    assert f"cannot listen on local port {taken}" in result.stderr
    assert manager.offered.access_tokens == []


def test_start_says_how_its_ports_are_reached(manager: RestManager, moorage: Run) -> None:
    result = moorage("start", "--name", "lab", "--port", "jupyter", "--port", "db/tcp", "--", "x")
    assert "moorage open lab jupyter" in result.stderr
    assert "moorage port-forward lab db" in result.stderr


@pytest.mark.parametrize("verb", ["start", "run"])
def test_ports_are_declared_as_written(manager: RestManager, moorage: Run, verb: str) -> None:
    words = ["--port", "jupyter+path+key", "--port", "db/tcp", "--no-wait", "--", "x"]
    assert moorage(verb, *words).exit_code == 0
    (one,) = manager.sessions.values()
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
