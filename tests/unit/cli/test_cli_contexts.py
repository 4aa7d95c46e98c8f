"""``moorage contexts``, and the installation to which a command connects."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from fake_manager import KEY, FakeManager
from invoke import Run

from moorage.common.model.errors import ConfigError, NotFound
from moorage.sdk.installation.connection import find_connection
from moorage.sdk.installation.contexts import Context, Contexts, write_contexts

SITE = Context("https://site.example", "https://models.site.example/v1", "/keys/site")
NOWHERE = {"MOORAGE_URL": None, "MOORAGE_API_KEY": None, "MOORAGE_OPENAI_URL": None}


def test_command_talks_to_the_context_in_use(
    manager: FakeManager, moorage: Run, tmp_path: Path
) -> None:
    added = moorage("contexts", "add", "site", "--url", manager.url, stdin=f"{KEY}\n", **NOWHERE)
    assert (added.exit_code, added.stdout) == (0, "site\n"), added.stderr
    assert moorage("ps", **NOWHERE).exit_code == 1, "it is not in use yet"
    assert moorage("ps", **NOWHERE, MOORAGE_CONTEXT="site").exit_code == 0
    assert moorage("contexts", "use", "site", **NOWHERE).exit_code == 0
    assert moorage("ps", **NOWHERE).exit_code == 0
    listed = json.loads(moorage("contexts", "-o", "json", **NOWHERE).stdout)["contexts"]
    assert [(one["name"], one["current"]) for one in listed] == [("local", False), ("site", True)]
    assert KEY not in moorage("contexts", **NOWHERE).stdout
    key = tmp_path / "home" / "contexts" / "site.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert moorage("contexts", "remove", "site", **NOWHERE).exit_code == 0
    assert not key.exists()
    assert moorage("contexts", "list", "-o", "name", **NOWHERE).stdout == "local\n"
    assert moorage("ps", **NOWHERE).exit_code == 1


def test_key_file_of_the_user_is_named_and_kept(moorage: Run, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mg-mine\n")
    args = ("contexts", "add", "lab", "--url", "http://192.0.2.5:8700", "--key-file", str(mine))
    assert moorage(*args).exit_code == 0
    assert (
        find_connection({"MOORAGE_HOME": str(tmp_path / "home"), "MOORAGE_CONTEXT": "lab"}).key
        == "mg-mine"
    )
    assert moorage("contexts", "remove", "lab").exit_code == 0
    assert mine.exists()


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        ("add site", 2, "--url"),
        ("add local --url http://a", 2, "cannot be named 'local'"),
        ("add ../x --url http://a", 2, "cannot be named '../x'"),
        ("add site --url http://a", 2, "no API key was given"),
        ("use nobody", 3, "there is no context 'nobody'"),
        ("remove nobody", 3, "there is no context 'nobody'"),
        ("remove local", 2, "is not saved here"),
    ],
)
def test_contexts_refuses(moorage: Run, args: str, code: int, message: str) -> None:
    refused = moorage("contexts", *args.split())
    assert (refused.exit_code, message in refused.stderr) == (code, True), refused.stderr


@pytest.mark.parametrize(
    ("env", "url", "found"),
    [
        ({}, None, "https://site.example"),
        ({"MOORAGE_CONTEXT": "local"}, None, "http://127.0.0.1:8700"),
        ({"MOORAGE_URL": "http://other"}, None, "http://other"),
        ({"MOORAGE_CONTEXT": "site"}, "http://other", "http://other"),
    ],
)
def test_options_and_environment_are_stronger_than_the_context(
    tmp_path: Path, env: dict[str, str], url: str | None, found: str
) -> None:
    (tmp_path / "key").write_text("mg-site")
    site = Context(SITE.url, SITE.openai_url, str(tmp_path / "key"))
    write_contexts(tmp_path, Contexts("site", {"site": site}))
    at = find_connection({"MOORAGE_HOME": str(tmp_path), **env}, url=url)
    assert at.http_url == found
    assert (at.key == "mg-site") is (found == SITE.url), "another address must not get its key"


def test_missing_key_file_of_a_context_names_it(tmp_path: Path) -> None:
    write_contexts(tmp_path, Contexts("site", {"site": SITE}))
    with pytest.raises(
        ConfigError, match="context site: the file with the API key, /keys/site, does not"
    ):
        find_connection({"MOORAGE_HOME": str(tmp_path)})


def test_unknown_context_of_the_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no context 'lab'"):
        find_connection({"MOORAGE_HOME": str(tmp_path), "MOORAGE_CONTEXT": "lab"})


@pytest.mark.parametrize(
    "text", ["", "[]", '{"current": "a"}', '{"current": "a", "contexts": {"a": {"x": "y"}}}']
)
def test_broken_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "contexts.json").write_text(text)
    with pytest.raises(ConfigError, match=r"contexts\.json is not a contexts file"):
        find_connection({"MOORAGE_HOME": str(tmp_path)})
