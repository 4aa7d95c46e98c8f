"""The question whether to install vLLM, which ``moorage serve`` asks, on a real terminal."""

from __future__ import annotations

import os
import pty
import select
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_manager import KEY, FakeManager
from invoke import Run
from scripted_session import runs
from tests.forked_command import ForkedCommand

from moorage.common.model.reasons import Reason

SERVE = ("serve", "some/model", "--engine", "vllm", "--name", "m", "--gpus", "0", "--no-wait")
SERVE += ("--resources", "cpu=1", "--resources", "mem=1GiB")
QUESTION = "No node has vLLM. Install it on "
NOTE = "has vLLM; --yes installs it on "
OTHER_NOTE = "; --runtime docker runs its container, on "
REFUSED = "vLLM was not installed on "
INSTALL = "POST /v1/sessions"
CREATE = "POST /v1/endpoints"
WITHIN_S = 30.0


@pytest.fixture
def without_vllm(manager: FakeManager) -> FakeManager:
    manager.set_agent(engines=["custom", "llamacpp"])
    manager.next_session(**runs(1, Reason.EXIT_NONZERO, b"no space is left\n"))
    return manager


def on_terminal(
    manager: FakeManager, home: Path, args: Sequence[str], answer: bytes
) -> tuple[int, str]:
    """The exit code and output of a command on a terminal for all three streams, where ``answer``
    is typed after the question."""
    ours, theirs = pty.openpty()
    env = os.environ | {
        "MOORAGE_API_KEY": KEY,
        "MOORAGE_URL": manager.url,
        "MOORAGE_HOME": str(home),
    }
    env |= {"NO_COLOR": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(home)}
    asked = ForkedCommand(args, env, stdin=theirs, stdout=theirs, stderr=theirs, terminal=True)
    os.close(theirs)
    shown = b""
    ends_at = time.monotonic() + WITHIN_S
    try:
        while time.monotonic() < ends_at:
            if not select.select([ours], [], [], 0.5)[0]:
                continue

            try:
                piece = os.read(ours, 4096)
            except OSError:  # no process has the terminal open
                break

            shown += piece
            if answer and any(end in shown for end in (b"[Y/n]: ", b"(install): ")):
                # Python does not notice a signal between printing its prompt and reading; no person
                # could send one that fast.
                while not _sleeps(asked.pid) and time.monotonic() < ends_at:
                    time.sleep(0.01)

                os.write(ours, answer)
                answer = b""

        return asked.wait(max(0.1, ends_at - time.monotonic())), " ".join(shown.decode().split())
    finally:
        asked.kill()
        asked.wait()
        os.close(ours)


def _sleeps(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@pytest.mark.parametrize(
    ("answer", "code", "says", "done"),
    [
        (b"y\n", 1, REFUSED, [INSTALL]),
        (b"\n", 1, REFUSED, [INSTALL]),
        (b"what\ny\n", 1, REFUSED, [INSTALL]),
        (b"n\n", 0, NOTE, [CREATE]),
        (b"\x03", 130, QUESTION, []),
        (b"\x04", 130, QUESTION, []),
    ],
    ids=["yes", "default", "nonsense", "no", "ctrl-c", "end-of-input"],
)
def test_answers(
    answer: bytes, code: int, says: str, done: list[str], without_vllm: FakeManager, tmp_path: Path
) -> None:
    ended, shown = on_terminal(without_vllm, tmp_path, SERVE, answer)
    assert QUESTION in shown
    assert says in shown
    assert (ended, writes(without_vllm)) == (code, done), shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("answer", "code", "says", "done"),
    [
        (b"\n", 1, REFUSED, [INSTALL]),
        (b"install\n", 1, REFUSED, [INSTALL]),
        (b"container\n", 0, "", [CREATE]),
        (b"what\ncontainer\n", 0, "Please select one of the available options", [CREATE]),
        (b"no\n", 0, OTHER_NOTE, [CREATE]),
        (b"\x03", 130, QUESTION, []),
        (b"\x04", 130, QUESTION, []),
    ],
    ids=["default", "install", "container", "nonsense", "no", "ctrl-c", "end-of-input"],
)
def test_answers_where_containers_run(
    answer: bytes, code: int, says: str, done: list[str], without_vllm: FakeManager, tmp_path: Path
) -> None:
    without_vllm.set_agent(runtimes=["process", "docker"])
    ended, shown = on_terminal(without_vllm, tmp_path, SERVE, answer)
    assert ", or run its container on " in shown
    assert says in shown
    assert (ended, writes(without_vllm)) == (code, done), shown
    assert "Traceback" not in shown
    chosen = [spec.runtime for spec in without_vllm.store.endpoints.specs.values()]
    assert chosen == ["docker" if b"container" in answer else "process"] * done.count(CREATE)


def test_a_node_that_runs_only_containers(without_vllm: FakeManager, tmp_path: Path) -> None:
    without_vllm.set_agent(runtimes=["docker"])
    ended, shown = on_terminal(without_vllm, tmp_path, SERVE, b"y\n")
    assert "No node has vLLM. Run its container on " in shown
    assert (ended, writes(without_vllm)) == (0, [CREATE]), shown
    [spec] = without_vllm.store.endpoints.specs.values()
    assert spec.runtime == "docker"


def test_yes_does_not_ask(without_vllm: FakeManager, tmp_path: Path) -> None:
    ended, shown = on_terminal(without_vllm, tmp_path, [*SERVE, "--yes"], b"")
    assert QUESTION not in shown
    assert (ended, writes(without_vllm)) == (1, [INSTALL]), shown


@pytest.mark.parametrize("stdin", ["", "y\n"])
def test_without_a_terminal_nothing_is_asked(
    stdin: str, without_vllm: FakeManager, moorage: Run
) -> None:
    result = moorage(*SERVE, stdin=stdin)
    assert QUESTION not in result.output
    assert NOTE in " ".join(result.stderr.split())
    assert (result.exit_code, writes(without_vllm)) == (0, [CREATE])


def writes(manager: FakeManager) -> list[str]:
    return [request for request in manager.requests if request.startswith("POST")]
