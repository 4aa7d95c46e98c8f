"""``chat``: one question by argument or stdin, a conversation at a terminal."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

from invoke import Run
from rest_manager import KEY, RestManager

from moorage.common.model.spec import EndpointSpec, Probe


def serve(manager: RestManager, *names: str) -> None:
    for name in names:
        spec = EndpointSpec(name=name, engine="custom", command=["serve"], probe=Probe())
        manager.add_endpoint(spec)
    for session in manager.sessions.values():
        while session.script:
            session.look()


def test_one_question(manager: RestManager, moorage: Run) -> None:
    manager.answer = [" the \x1b[2J sea", "."]
    assert moorage("chat", "tiny", "Where?", "--max-tokens", "5").stdout == " the \ufffd[2J sea.\n"
    assert moorage("chat", "tiny", stdin="From stdin\n").exit_code == 0
    answer = moorage("chat", "tiny", "Where?", "-o", "json").stdout
    assert json.loads(answer) == {"model": "tiny", "content": " the \x1b[2J sea."}
    assert [ask["messages"][0]["content"] for ask in manager.asked] == ["Where?", "From stdin", "Where?"]
    assert manager.asked[0]["max_tokens"] == 5


def test_the_only_ready_model_needs_no_name(manager: RestManager, moorage: Run) -> None:
    result = moorage("chat", "two words")
    assert result.exit_code == 3
    assert "moorage serve" in result.stderr
    serve(manager, "tiny")
    assert moorage("chat", "two words").exit_code == 0
    assert (manager.asked[0]["model"], manager.asked[0]["messages"][0]["content"]) == ("tiny", "two words")
    serve(manager, "other")
    result = moorage("chat", "two words")
    assert result.exit_code == 2
    assert "other, tiny" in result.stderr


def test_an_error_in_mid_stream_is_a_failure(manager: RestManager, moorage: Run) -> None:
    manager.answer = ["half", {"error": {"message": "engine died", "code": 500, "type": "server_error"}}]
    result = moorage("chat", "tiny", "Where?")
    assert (result.exit_code, result.stdout) == (1, "half\n")
    assert "moorage: engine died" in result.stderr


def test_no_question_at_all(moorage: Run) -> None:
    assert moorage("chat", "tiny", stdin="").exit_code == 2


def test_a_conversation_at_a_terminal(manager: RestManager, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    env = os.environ | {"MOORAGE_API_KEY": KEY, "MOORAGE_HOME": str(tmp_path), "NO_COLOR": "1"}
    command = [sys.executable, "-c", "from moorage.cli import app; app()", "chat", "tiny"]
    command += ["--openai-url", manager.openai_url]
    talk = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    try:
        os.write(ours, b"first\nsecond\n\n")
        out, err = talk.communicate(timeout=30)
    finally:
        talk.kill()
        os.close(ours)
        os.close(theirs)
    assert talk.returncode == 0, err
    assert out.decode().count(" the sea and the moon.") == 2
    assert [m["content"] for m in manager.asked[1]["messages"]] == [
        "first",
        " the sea and the moon.",
        "second",
    ]
