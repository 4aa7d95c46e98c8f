"""Completion in the shell: names of commands, sessions, endpoints, agents and groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_manager import FakeManager
from invoke import Run
from scripted_session import batch
from test_cli_grammar import ROOT, commands

from moorage import __version__
from moorage.common.model.spec import EndpointSpec, Port, Probe

# Option names whose values are names of the manager's objects.
OF_OBJECTS = {
    "about", "after", "alias", "fallback", "group", "kernel", "key", "like", "model", "name", "on",
    "pipeline", "project", "secret", "session", "share", "template", "user",
}  # fmt: skip
# Commands that make no requests to a manager.
DAEMONS = {
    "agent", "config", "db", "demo", "doctor", "manager", "proxy", "simulate", "up", "upgrade",
}  # fmt: skip
# Arguments and options without completion, and why.
NEW = "the name of what is created"
VALUE = "no name"
UNCOMPLETED = {
    ("audit", "name"): "of any kind of object",
    ("budgets delete", "scope"): VALUE,
    ("budgets delete", "unit"): VALUE,
    ("budgets set", "scope"): VALUE,
    ("budgets set", "unit"): VALUE,
    ("chat", "prompt"): VALUE,
    ("endpoints set", "fields"): VALUE,
    ("events", "about"): "an id, which nobody types",
    ("groups create", "name"): NEW,
    ("groups create", "options"): VALUE,
    ("groups forget", "alias"): "a former name, which lists do not have",
    ("groups rename", "new_name"): NEW,
    ("groups set", "options"): VALUE,
    ("keys add-ssh", "file"): "a file",
    ("keys add-ssh", "name"): NEW,
    ("keys create", "name"): NEW,
    ("label", "changes"): VALUE,
    ("limits set", "given"): VALUE,
    ("limits set", "scope"): VALUE,
    ("notifications create", "name"): NEW,
    ("peers revoke", "kind"): VALUE,
    ("prices set", "price"): VALUE,
    ("prices set", "unit"): VALUE,
    ("projects members set", "role"): VALUE,
    ("qos set", "options"): VALUE,
    ("quotas delete", "scope"): VALUE,
    ("quotas set", "limits"): VALUE,
    ("quotas set", "scope"): VALUE,
    ("rename", "name"): NEW,
    ("cron create", "command"): "a program",
    ("cron create", "name"): NEW,
    ("cron create", "pipeline"): "a file",
    ("cron create", "secret"): "shells split at the = before it",
    ("serve", "model"): "a file, or an id on a hub",
    ("serve", "name"): NEW,
    ("update", "name"): NEW,
    ("tasks retry", "name"): NEW,
    ("users create", "name"): NEW,
    **{(verb, "name"): NEW for verb in ("plan", "run", "start")},
    **{
        (verb, "secret"): "shells split at the = before it"
        for verb in ("plan", "run", "serve", "start")
    },
    **{(verb, "command"): "a program" for verb in ("exec", "plan", "run", "serve", "ssh", "start")},
    **{(verb, "arguments"): "of a program" for verb in ("claude", "codex")},
}


def complete(moorage: Run, words: str, **variables: str | None) -> list[str]:
    result = moorage(
        _MOORAGE_COMPLETE="complete_bash",
        COMP_WORDS=f"moorage {words}",
        COMP_CWORD=str(words.count(" ") + 1),
        **variables,
    )
    assert result.stderr == ""
    return result.stdout.split()


def test_commands_are_completed(moorage: Run) -> None:
    assert {"peers", "pipelines", "plan", "port-forward", "projects", "ps"} <= set(
        complete(moorage, "p")
    )
    assert "rotate" in complete(moorage, "keys ")


def test_names_of_live_objects_are_completed(manager: FakeManager, moorage: Run) -> None:
    manager.add_session(batch("train-1"))
    manager.add_session(batch("train-2"))
    manager.add_endpoint(
        EndpointSpec(name="tiny", engine="custom", command=["serve"], probe=Probe())
    )
    assert complete(moorage, "describe t") == ["tiny", "train-1", "train-2"]
    assert complete(moorage, "scale ") == ["tiny"]
    assert complete(moorage, "exec train-") == ["train-1", "train-2"]
    assert complete(moorage, "groups describe ") == ["default"]
    assert len(complete(moorage, "agents cordon ")) == 1


def test_completion_is_silent_without_a_manager_or_a_key(moorage: Run) -> None:
    assert complete(moorage, "stop ", MOORAGE_URL="http://127.0.0.1:1") == []
    assert complete(moorage, "stop ", MOORAGE_URL="nonsense") == []
    assert complete(moorage, "stop ", MOORAGE_API_KEY="wrong") == []


def test_version_is_also_an_option(moorage: Run) -> None:
    assert moorage("--version").stdout == f"{__version__}\n"


def test_names_of_what_is_stored_are_completed(manager: FakeManager, moorage: Run) -> None:
    for words in (
        "pipelines stop ",
        "projects members list ",
        "secrets delete ",
        "templates describe ",
    ):
        complete(moorage, words)
        assert manager.requests[-1] == f"GET /v1/{words.split()[0]}?limit=500"


def test_every_name_is_completed() -> None:
    found = {
        (" ".join(path), parameter.name)
        for path, one in commands(ROOT)
        if not hasattr(one, "commands") and path[0] not in DAEMONS
        for parameter in one.params
        if of_text(parameter)
        and (parameter.param_type_name == "argument" or parameter.name in OF_OBJECTS)
        and parameter.type_descriptor.parameter_info.autocompletion is None
    }
    assert found == UNCOMPLETED.keys()


def of_text(parameter: Any) -> bool:
    return parameter.name != "help" and parameter.type_descriptor.annotation in (str, list[str])


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("run --group ", "/v1/groups?limit=500"),
        ("serve x --on ", "/v1/agents?limit=500"),
        ("start --template ", "/v1/templates?limit=500"),
        ("ps --pipeline ", "/v1/pipelines?limit=500"),
        ("keys revoke ", "/v1/keys?limit=500"),
        ("users set ", "/v1/users?limit=500"),
        ("projects delete ", "/v1/projects?limit=500"),
        ("projects restore ", "/v1/projects?archived=true&limit=500"),
        ("users restore ", "/v1/users?archived=true&limit=500"),
        ("workspaces delete ", "/v1/workspaces"),
        ("peers revoke agent ", "/v1/peers?limit=500"),
        ("budgets set project ", "/v1/projects?limit=500"),
        ("quotas delete group ", "/v1/groups?limit=500"),
        ("limits set model ", "/v1/endpoints?limit=500"),
        ("port-forward my/lab ", "/v1/sessions/my%2Flab/apps"),
        ("logs job --kernel ", "/v1/sessions/job"),
    ],
)
def test_names_are_asked_for(manager: FakeManager, moorage: Run, words: str, path: str) -> None:
    complete(moorage, words)
    assert manager.requests[-1] == f"GET {path}"


def test_names_depend_on_the_arguments_before_them(manager: FakeManager, moorage: Run) -> None:
    manager.add_session(batch("train-1").model_copy(update={"ports": [Port(name="web")]}))
    assert complete(moorage, "cp tr") == ["train-1:"]
    assert complete(moorage, "cp ./tr") == []
    assert complete(moorage, "run --after tr") == ["train-1"]
    assert complete(moorage, "exec train-1 --kernel ") == ["main1"]
    assert complete(moorage, "open train-1 ") == ["web"]
    assert complete(moorage, "quotas set group def") == ["default"]
    assert complete(moorage, "quotas set nothing ") == []


def test_names_of_this_machine_are_completed(moorage: Run, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    key = tmp_path / "key"
    key.write_text("secret\n")
    moorage("contexts", "add", "site", "--url", "http://192.0.2.5", "--key-file", str(key))
    nowhere = {"MOORAGE_URL": "http://127.0.0.1:1"}
    assert complete(moorage, "contexts use ", **nowhere) == ["local", "site"]
    assert complete(moorage, "contexts remove s", **nowhere) == ["site"]
    assert "Qwen/Qwen3-8B" in complete(moorage, "models show Qwen/", **nowhere)
    (tmp_path / "home" / "contexts.json").write_text("nonsense")
    assert complete(moorage, "contexts use ") == []
