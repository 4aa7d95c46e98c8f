"""Completion in the shell: names of commands, sessions, endpoints, agents and groups."""

from __future__ import annotations

from fake_manager import FakeManager
from invoke import Run
from scripted_session import batch

from moorage import __version__
from moorage.common.model.spec import EndpointSpec, Probe


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
    assert {"peers", "pipelines", "plan", "port-forward", "projects", "ps"} <= set(complete(moorage, "p"))
    assert "rotate" in complete(moorage, "keys ")


def test_names_of_live_objects_are_completed(manager: FakeManager, moorage: Run) -> None:
    manager.add_session(batch("train-1"))
    manager.add_session(batch("train-2"))
    manager.add_endpoint(EndpointSpec(name="tiny", engine="custom", command=["serve"], probe=Probe()))
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
    for words in ("pipelines stop ", "projects members list ", "secrets delete ", "templates describe "):
        complete(moorage, words)
        assert manager.requests[-1] == f"GET /v1/{words.split()[0]}?limit=500"
