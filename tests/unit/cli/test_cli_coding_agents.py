"""``moorage claude`` and ``moorage codex``, with programs that show how they were started."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from fake_manager import KEY, FakeManager
from hypothesis import given
from hypothesis import strategies as st
from invoke import Run

from moorage.cli.coding_agents import CLAUDE, CODEX, CodingAgent, CodingModel
from moorage.common.model.roles import Role
from moorage.common.views.console import WhoAmI
from moorage.sdk.served_models import ServedModel

NOW = datetime.fromisoformat("2026-01-01T00:00:00Z")
PROGRAM = """#!/bin/sh
env > "$SEEN.env"
printf '%s\\n' "$@" > "$SEEN.args"
exit 7
"""


@pytest.fixture
def programs(tmp_path: Path, manager: FakeManager) -> dict[str, str]:
    """Variables with which both programs are found. The model ``coder`` is served."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("claude", "codex"):
        (folder / name).write_text(PROGRAM)
        (folder / name).chmod(0o755)
    manager.can("GET", "/v1/session", 200, me("ada", Role.MEMBER))
    serve(manager, ServedModel(id="coder", max_model_len=65_536))
    return {"PATH": f"{folder}:{os.environ['PATH']}", "SEEN": str(tmp_path / "seen")}


def me(user: str, role: Role) -> WhoAmI:
    return WhoAmI(kind="key", user=user, project="lovelace", role=role, now=NOW)


def serve(manager: FakeManager, model: ServedModel) -> None:
    manager.can("GET", f"/v1/models/{model.id}", 200, model)


def seen(programs: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    lines = Path(programs["SEEN"] + ".env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines), Path(
        programs["SEEN"] + ".args"
    ).read_text().splitlines()


def test_claude_asks_the_model_with_a_key_that_ends_with_it(
    manager: FakeManager, moorage: Run, programs: dict[str, str]
) -> None:
    ended = moorage("claude", "coder", "--", "-p", "hi", **programs, ANTHROPIC_API_KEY="theirs")
    assert (ended.exit_code, ended.stderr) == (7, "")
    env, arguments = seen(programs)
    assert arguments == ["-p", "hi"]
    assert env["ANTHROPIC_BASE_URL"] + "/v1" == manager.openai_url
    assert env["ANTHROPIC_AUTH_TOKEN"].startswith("mg-")
    assert env["ANTHROPIC_AUTH_TOKEN"] != KEY
    assert (env["ANTHROPIC_MODEL"], env["ANTHROPIC_DEFAULT_HAIKU_MODEL"]) == ("coder", "coder")
    assert env["CLAUDE_CODE_ATTRIBUTION_HEADER"] == "0"
    assert env["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "16384", "a quarter of the context"
    assert "ANTHROPIC_API_KEY" not in env
    assert "POST /v1/keys" in manager.requests
    assert sorted(manager.store.keys.views) == ["ada", "root"], "the key was revoked"


def test_key_is_for_one_model_and_expires(
    manager: FakeManager, moorage: Run, programs: dict[str, str]
) -> None:
    begun = datetime.now().astimezone()
    printed = moorage("codex", "coder", "--print-env", "--expires", "1h", **programs)
    assert printed.exit_code == 0
    assert not Path(programs["SEEN"] + ".env").exists()
    [name] = set(manager.store.keys.views) - {"ada", "root"}
    key = manager.store.keys.views[name]
    assert (key.user, key.project, key.scopes, key.models) == (
        "ada",
        "lovelace",
        ["models:use"],
        ["coder"],
    )
    assert key.role == "member"
    assert key.expires_at is not None
    assert timedelta(minutes=59) < key.expires_at - begun < timedelta(minutes=61)
    assert f"moorage keys revoke {name}" in printed.stderr


def test_printed_commands_start_codex_with_the_model(
    manager: FakeManager, moorage: Run, programs: dict[str, str]
) -> None:
    script = moorage("codex", "coder", "--print-env", **programs).stdout + "codex exec 'a b'\n"
    subprocess.run(["sh", "-c", script], env=os.environ | programs, check=False)
    env, arguments = seen(programs)
    assert arguments[-2:] == ["exec", "a b"]
    config = tomllib.loads("\n".join(arguments[1:-2:2]))
    assert (config["model"], config["model_context_window"]) == ("coder", 65_536)
    provider = config["model_providers"][config["model_provider"]]
    assert (provider["base_url"], provider["wire_api"]) == (manager.openai_url, "responses")
    assert env[provider["env_key"]].startswith("mg-")


def test_output_as_json_has_the_environment(moorage: Run, programs: dict[str, str]) -> None:
    shown = json.loads(moorage("claude", "coder", "--print-env", "-o", "json", **programs).stdout)
    assert shown["environment"]["ANTHROPIC_MODEL"] == "coder"
    assert shown["options"] == []


def test_key_of_an_administrator_needs_no_membership(
    manager: FakeManager, moorage: Run, programs: dict[str, str]
) -> None:
    manager.can("GET", "/v1/session", 200, me("root", Role.ADMIN))
    assert moorage("claude", "coder", "--print-env", **programs).exit_code == 0
    [name] = set(manager.store.keys.views) - {"ada", "root"}
    key = manager.store.keys.views[name]
    assert (key.user, key.role, key.scopes) == ("root", "admin", ["models:use"])


def test_new_key_is_used_once_the_proxy_knows_it(
    manager: FakeManager, moorage: Run, programs: dict[str, str]
) -> None:
    manager.can("GET", "/v1/models/coder", 401, "{}", times=2)
    manager.openai.models["coder"] = ServedModel(id="coder").model_dump()
    assert moorage("claude", "coder", **programs).exit_code == 7
    assert manager.requests.count("GET /v1/models/coder") == 3


@pytest.mark.parametrize(
    ("status", "model", "code", "message"),
    [
        (404, "{}", 3, "there is no model 'coder'"),
        (
            200,
            ServedModel(id="coder", capabilities=["/v1/embeddings"]),
            1,
            "lacks /v1/messages",
        ),
    ],
)
def test_key_is_revoked_when_the_model_cannot_be_asked(
    manager: FakeManager,
    moorage: Run,
    programs: dict[str, str],
    status: int,
    model: ServedModel | str,
    code: int,
    message: str,
) -> None:
    manager.can("GET", "/v1/models/coder", status, model)
    refused = moorage("claude", "coder", **programs)
    assert (refused.exit_code, message in refused.stderr) == (code, True), refused.stderr
    assert sorted(manager.store.keys.views) == ["ada", "root"]


def test_small_context_is_warned_of(
    manager: FakeManager, moorage: Run, programs: dict[str, str]
) -> None:
    serve(manager, ServedModel(id="coder", max_model_len=4096))
    assert "context of coder has 4096 tokens" in moorage("claude", "coder", **programs).stderr


def test_missing_program_says_how_to_install_it(
    manager: FakeManager, moorage: Run, tmp_path: Path
) -> None:
    missing = moorage("claude", "coder", PATH=str(tmp_path))
    assert missing.exit_code == 127
    assert "npm install -g @anthropic-ai/claude-code" in missing.stderr
    assert "POST /v1/keys" not in manager.requests


def test_proxy_that_does_not_answer_is_named(moorage: Run, programs: dict[str, str]) -> None:
    refused = moorage("claude", "coder", "--openai-url", "http://127.0.0.1:1/v1", **programs)
    assert "no proxy answers at http://127.0.0.1:1/v1" in refused.stderr
    assert "--openai-url" in refused.stderr


def test_sigterm_reaches_the_program_and_the_key_is_revoked(
    manager: FakeManager, programs: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "bin" / "claude").write_text('#!/bin/sh\ntouch "$SEEN"\nexec sleep 60\n')
    env = os.environ | programs | {"MOORAGE_URL": manager.url, "MOORAGE_API_KEY": KEY}
    env |= {"MOORAGE_OPENAI_URL": manager.openai_url, "MOORAGE_HOME": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-m", "moorage", "claude", "coder"], env=env)
    try:
        deadline = time.monotonic() + 30
        while not Path(programs["SEEN"]).exists() and time.monotonic() < deadline:
            time.sleep(0.02)

        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()

    assert sorted(manager.store.keys.views) == ["ada", "root"]


@pytest.mark.parametrize("agent", [CLAUDE, CODEX], ids=lambda agent: str(agent.program))
@given(model=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_any_name_of_a_model_is_one_word_for_the_shell(agent: CodingAgent, model: str) -> None:
    launch = agent.launch(CodingModel("http://127.0.0.1:8800/v1", model, "mg-x"))
    words = shlex.split(agent.script(launch))
    if agent is CLAUDE:
        assert f"ANTHROPIC_MODEL={model}" in words
    else:
        given_models = [tomllib.loads(pair) for pair in launch.options if pair.startswith("model=")]
        assert given_models == [{"model": model}]
