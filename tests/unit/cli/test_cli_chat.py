"""``moorage chat``: one question from an argument or stdin, and a conversation on a terminal."""

import json
import os
import pty
import subprocess
from pathlib import Path

from fake_manager import KEY, FakeManager
from invoke import Run
from tests.forked_command import ForkedCommand

from moorage.common.model.spec import EndpointSpec, Probe


def serve(manager: FakeManager, *names: str) -> None:
    for name in names:
        spec = EndpointSpec(name=name, engine="custom", command=["serve"], probe=Probe())
        manager.add_endpoint(spec)
    for session in manager.sessions:
        session.finish()


def test_chat_answers_one_question(manager: FakeManager, moorage: Run) -> None:
    manager.openai.chunks = [" the \x1b[2J sea", "."]
    assert moorage("chat", "tiny", "Where?", "--max-tokens", "5").stdout == " the \\x1b[2J sea.\n"
    assert moorage("chat", "tiny", stdin="From stdin\n").exit_code == 0
    answer = moorage("chat", "tiny", "Where?", "-o", "json").stdout
    assert json.loads(answer) == {"model": "tiny", "content": " the \x1b[2J sea."}
    assert [ask["messages"][0]["content"] for ask in manager.openai.requests] == [
        "Where?",
        "From stdin",
        "Where?",
    ]
    assert manager.openai.requests[0]["max_tokens"] == 5


def test_chat_needs_no_name_when_one_model_is_ready(manager: FakeManager, moorage: Run) -> None:
    result = moorage("chat", "two words")
    assert result.exit_code == 3
    assert "moorage serve" in result.stderr
    serve(manager, "tiny")
    assert moorage("chat", "two words").exit_code == 0
    assert (
        manager.openai.requests[0]["model"],
        manager.openai.requests[0]["messages"][0]["content"],
    ) == (
        "tiny",
        "two words",
    )
    serve(manager, "other")
    result = moorage("chat", "two words")
    assert result.exit_code == 2
    assert "other, tiny" in result.stderr


def test_chat_fails_on_an_error_in_mid_stream(manager: FakeManager, moorage: Run) -> None:
    manager.openai.chunks = [
        "half",
        {"error": {"message": "engine died", "code": 500, "type": "server_error"}},
    ]
    result = moorage("chat", "tiny", "Where?")
    assert (result.exit_code, result.stdout) == (1, "half\n")
    assert "moorage: engine died" in result.stderr


def test_a_sentence_is_joined_with_the_next_step(manager: FakeManager, moorage: Run) -> None:
    body = '{"error": {"message": "The model \'x\' does not exist.", "code": "model_not_found"}}'
    manager.can("POST", "/v1/chat/completions", 404, body)
    result = moorage("chat", "x", "hi")
    assert "does not exist; `moorage ps` lists the models" in result.stderr


def test_chat_refuses_an_empty_question(moorage: Run) -> None:
    assert moorage("chat", "tiny", stdin="").exit_code == 2


def test_chat_on_a_terminal_keeps_the_conversation(manager: FakeManager, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    env = os.environ | {"MOORAGE_API_KEY": KEY, "MOORAGE_HOME": str(tmp_path), "NO_COLOR": "1"}
    args = ["chat", "tiny", "--openai-url", manager.openai_url]
    talk = ForkedCommand(args, env, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        os.write(ours, b"first\nsecond\n\n")
        out, err = talk.communicate(timeout=30)
    finally:
        talk.kill()
        os.close(ours)
        os.close(theirs)

    assert talk.returncode == 0, err
    assert out.count(" the sea and the moon.") == 2
    assert [m["content"] for m in manager.openai.requests[1]["messages"]] == [
        "first",
        " the sea and the moon.",
        "second",
    ]
