"""Behavior shared by all commands: connection, errors, exit codes, colours, help."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fake_manager import KEY, FakeManager
from invoke import Run
from rich.console import Console
from scripted_session import batch
from tests.forked_command import ForkedCommand, run_forked

from moorage.cli.output import has_colours
from moorage.cli.parse import guess_engine, guess_name, locate_model
from moorage.common.model.errors import ConfigError
from moorage.sdk.installation.connection import find_connection

CLI = [sys.executable, "-c", "from moorage.cli import app; app()"]


def test_connection_refused_names_the_next_step(moorage: Run) -> None:
    result = moorage("ps", "--url", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("moorage: no manager answers at http://127.0.0.1:1 (")
    assert "moorage up" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("describe", "nope"), 3),
        (("logs", "nope"), 3),
        (("stop", "nope"), 3),
        (("ps", "--key-file", "/dev/null"), 4),
        (("--key-file", "/dev/null", "ps"), 4),
        (("ps", "--key-file", "/nowhere"), 2),
        (("ps", "--key", "secret"), 2),
        (("ps", "--url", "nonsense"), 2),
        (("ps", "-o", "nonsense"), 2),
        (("describe", ""), 2),
        (("ps", "--key-file", __file__), 2),
    ],
)
def test_exit_codes(moorage: Run, args: tuple[str, ...], code: int) -> None:
    result = moorage(*args)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith("moorage: ")
    assert result.stderr.count("\n") == 1


def test_errors_are_printed_without_control_characters(manager: FakeManager, moorage: Run) -> None:
    manager.can("GET", "/v1/endpoints", 500, "\x1b[2Jboo")
    result = moorage("ps")
    assert "boo" in result.stderr
    assert "\x1b" not in result.stderr


def test_precedence_of_connection_sources(tmp_path: Path) -> None:
    env = {"MOORAGE_HOME": str(tmp_path)}
    at = find_connection(env)
    assert (at.http_url, at.openai_url) == ("http://127.0.0.1:8700", "http://127.0.0.1:8800/v1")
    assert (at.url, at.key) == (f"unix://{tmp_path}/run/manager-8700.sock", "")
    (tmp_path / "connection.json").write_text(
        json.dumps({"url": "http://file", "openai_url": "http://file/v1"})
    )
    (tmp_path / "admin-key").write_text("file-key\n")
    at = find_connection(env)
    assert (at.url, at.openai_url, at.key) == ("http://file", "http://file/v1", "file-key")
    assert at.key_in_shell == f"$(cat {tmp_path}/admin-key)"
    env |= {"MOORAGE_URL": "http://env", "MOORAGE_API_KEY": "env-key", "MOORAGE_OPENAI_URL": ""}
    at = find_connection(env)
    assert (at.url, at.openai_url, at.key) == ("http://env", "http://file/v1", "env-key")
    (tmp_path / "flag-key").write_text("flag-key\n")
    flags = {
        "url": "http://flag",
        "key_file": str(tmp_path / "flag-key"),
        "openai_url": "http://flag/v1",
    }
    at = find_connection(env, **flags)
    assert (at.url, at.openai_url, at.key) == ("http://flag", "http://flag/v1", "flag-key")
    del env["MOORAGE_API_KEY"]
    assert find_connection(env | {"MOORAGE_API_KEY_FILE": flags["key_file"]}).key == "flag-key"


@pytest.mark.parametrize("content", ["[1]", "{", '{"url": 3}'])
def test_invalid_connection_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "connection.json").write_text(content)
    with pytest.raises(ConfigError, match=r"connection\.json is not a JSON object"):
        find_connection({"MOORAGE_HOME": str(tmp_path)})


def test_no_color_and_force_color(manager: FakeManager, tmp_path: Path) -> None:
    manager.add_session(batch("job"))
    env = {
        **os.environ,
        "MOORAGE_URL": manager.url,
        "MOORAGE_API_KEY": KEY,
        "MOORAGE_HOME": str(tmp_path),
    }

    def run(*args: str, **variables: str) -> str:
        done = run_forked(args, env | variables, timeout=30)
        done.check_returncode()
        return done.stdout

    assert "\x1b" not in run("ps")
    assert "\x1b[3" in run("ps", FORCE_COLOR="1", TERM="xterm")
    assert "\x1b[1m" in run("ps", FORCE_COLOR="1", TERM="xterm")
    assert "\x1b[" not in run("ps", FORCE_COLOR="1", TERM="xterm", NO_COLOR="1")
    assert "\x1b[" not in run("ps", "--no-color", FORCE_COLOR="1", TERM="xterm")


def test_progress_on_a_terminal_does_not_touch_stdout(manager: FakeManager, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    env = {
        **os.environ,
        "MOORAGE_URL": manager.url,
        "MOORAGE_API_KEY": KEY,
        "MOORAGE_HOME": str(tmp_path),
    }
    env |= {"TERM": "xterm", "MOORAGE_OPENAI_URL": manager.openai_url}

    try:
        done = run_forked(["serve", "org/big", "-o", "json"], env, timeout=30, stderr=theirs)
        output = os.read(ours, 1 << 20).decode()
    finally:
        os.close(theirs)
        os.close(ours)

    assert json.loads(done.stdout)["endpoint"]["ready"] == 1
    assert [output.count(f"s  big: {stage}") for stage in ("queued", "loading", "ready")] == [
        1,
        1,
        1,
    ]
    assert "\x1b[?25l" in output  # the cursor is hidden
    assert "\x1b[?25h" in output  # and shown again


def test_ctrl_c_ends_the_wait_but_not_the_endpoint(manager: FakeManager, tmp_path: Path) -> None:
    manager.next_session(script=[])
    env = {
        **os.environ,
        "MOORAGE_URL": manager.url,
        "MOORAGE_API_KEY": KEY,
        "MOORAGE_HOME": str(tmp_path),
    }
    env |= {"FORCE_COLOR": "1", "TERM": "dumb"}  # progress
    waits = ForkedCommand(["serve", "org/big"], env, stderr=subprocess.PIPE)
    assert waits.stderr is not None

    try:
        assert any("queued" in line for line in waits.stderr)
        waits.send_signal(signal.SIGINT)
        _, errors = waits.communicate(timeout=30)
    finally:
        waits.kill()

    assert waits.returncode == 130
    assert "big keeps starting" in errors
    assert "moorage stop big" in errors
    assert "Traceback" not in errors
    assert "big" in manager.endpoints


def test_closed_stdout_prints_no_traceback(manager: FakeManager, tmp_path: Path) -> None:
    for number in range(300):
        manager.add_session(batch(f"job-{number}"))

    env = {
        **os.environ,
        "MOORAGE_URL": manager.url,
        "MOORAGE_API_KEY": KEY,
        "MOORAGE_HOME": str(tmp_path),
    }
    read, write = os.pipe()
    os.close(read)

    try:
        done = subprocess.run(
            [*CLI, "ps", "-o", "json"],
            env=env,
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
        )
    finally:
        os.close(write)

    assert done.stderr == ""
    assert done.returncode == 1


def test_help_of_every_command_has_an_example(moorage: Run) -> None:
    listed = moorage().stdout
    assert "--output" in listed
    for name in (
        "serve",
        "run",
        "ps",
        "describe",
        "logs",
        "chat",
        "stop",
        "scale",
        "agents",
        "groups",
    ):
        assert name in listed

    for args in (
        ("serve",),
        ("run",),
        ("ps",),
        ("describe",),
        ("logs",),
        ("chat",),
        ("stop",),
        ("scale",),
    ):
        shown = moorage(*args, "--help").stdout
        assert f"\n    moorage {args[0]}" in shown
        assert "such as --url and -o: `moorage --help`" in shown


def test_version(moorage: Run) -> None:
    assert (
        json.loads(moorage("version", "-o", "json").stdout)["version"]
        == moorage("version").stdout.strip()
    )


@pytest.mark.parametrize(
    ("model", "name", "engine"),
    [
        ("./x/tiny.GGUF", "tiny", "llamacpp"),
        ("Qwen/Qwen3-0.6B", "Qwen3-0.6B", "vllm"),
        ("/models/my model (1)/", "my-model-1", "vllm"),
    ],
)
def test_guessed_names_and_engines(model: str, name: str, engine: str) -> None:
    assert (guess_name(model), guess_engine(model)) == (name, engine)


def test_local_paths_become_absolute_and_hub_ids_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate_model("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"
    assert locate_model("tiny.gguf") == str(tmp_path / "tiny.gguf")
    (tmp_path / "Qwen" / "Qwen3-0.6B").mkdir(parents=True)
    assert locate_model("Qwen/Qwen3-0.6B") == str(tmp_path / "Qwen" / "Qwen3-0.6B")


@pytest.mark.parametrize(
    ("terminal", "no_color", "coloured"),
    [(True, False, True), (True, True, False), (False, False, False)],
)
def test_colours_of_tracebacks(terminal: bool, no_color: bool, coloured: bool) -> None:
    console = Console(
        force_terminal=terminal, no_color=no_color, _environ={"TERM": "xterm-256color"}
    )
    assert has_colours(console) is coloured
