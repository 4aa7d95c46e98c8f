"""Waiting commands that are interrupted: by Ctrl-C, or by SIGTERM, which batch systems and CI
send."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from fake_manager import KEY, FakeManager
from invoke import Run
from scripted_session import batch
from tests.addresses import free_port
from tests.forked_command import ForkedCommand

from moorage.cli.interrupts import terminated_like_ctrl_c
from moorage.common.model.spec import Port

SIGNALS = pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
WITHIN_S = 30.0


def interrupt(
    manager: FakeManager,
    home: Path,
    args: list[str],
    sent: signal.Signals,
    *,
    waits: Callable[[], bool],
) -> tuple[int, str]:
    """Send a signal to a command as soon as it waits. Returns its exit code and its stderr
    output."""
    env = {
        **os.environ,
        "MOORAGE_URL": manager.url,
        "MOORAGE_API_KEY": KEY,
        "MOORAGE_HOME": str(home),
    }
    command = ForkedCommand(args, env, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + WITHIN_S
        while not waits():
            assert time.monotonic() < deadline
            time.sleep(0.02)

        command.send_signal(sent)
        _, errors = command.communicate(timeout=WITHIN_S)
    finally:
        command.kill()
        command.wait()

    assert "Traceback" not in errors
    return command.returncode, errors


def asked(manager: FakeManager, request: str) -> Callable[[], bool]:
    return lambda: any(one.startswith(request) for one in manager.requests)


@SIGNALS
@pytest.mark.parametrize("verb", ["serve", "start"])
def test_start_goes_on(
    manager: FakeManager, tmp_path: Path, verb: str, sent: signal.Signals, code: int
) -> None:
    manager.next_session(script=[])
    args = {"serve": ["serve", "org/big"], "start": ["start", "--name", "big"]}[verb]
    waits = asked(manager, "GET /v1/events")
    exits, errors = interrupt(manager, tmp_path, args, sent, waits=waits)
    assert exits == code
    assert "big keeps starting" in errors
    assert "`moorage stop big` ends it" in errors


@SIGNALS
def test_stop_goes_on(
    manager: FakeManager, tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    session = manager.add_session(batch("job"), advances_to_stop=10_000)
    waits = asked(manager, "GET /v1/events")
    exits, errors = interrupt(
        manager, tmp_path, ["stop", session.spec.name or ""], sent, waits=waits
    )
    assert (exits, "they keep stopping; `moorage ps` shows them" in errors) == (code, True)


@SIGNALS
def test_reload_goes_on(
    manager: FakeManager, moorage: Run, tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    manager.add_session(batch("gateway"))
    view = json.loads(moorage("describe", "gateway", "-o", "json").stdout)["session"]
    by = {"requested_at": view["created_at"], "requested_by": "ann"}
    view["kernels"][0]["reload"] = {"generation": 1, "state": "requested"} | by
    for method, path in (("POST", f"{view['id']}/reload"), ("GET", view["id"])):
        manager.can(method, f"/v1/sessions/{path}", 200, json.dumps(view))

    waits = asked(manager, "GET /v1/events")
    exits, errors = interrupt(manager, tmp_path, ["reload", "gateway"], sent, waits=waits)
    assert (exits, "they keep reloading; `moorage describe gateway` shows" in errors) == (
        code,
        True,
    )


@pytest.mark.parametrize(
    ("args", "creation", "what"),
    [
        (["serve", "org/big", "--gpus", "0"], "POST /v1/endpoints", "big"),
        (["start", "--name", "big"], "POST /v1/sessions", "the session"),
    ],
)
def test_interrupt_before_the_answer_promises_nothing(
    manager: FakeManager, tmp_path: Path, args: list[str], creation: str, what: str
) -> None:
    manager.unanswered = creation
    exits, errors = interrupt(
        manager, tmp_path, args, signal.SIGTERM, waits=asked(manager, creation)
    )
    assert (exits, f"`moorage ps` shows whether {what} was created" in errors) == (143, True)


@SIGNALS
def test_code_is_interrupted(
    manager: FakeManager, tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    manager.add_session(batch("dev"))
    runs = "/v1/sessions/dev/executions"
    view = {"run_id": "run-1", "kernel": "python3", "status": "continued", "console": [], "next": 0}
    manager.can("POST", runs, 201, json.dumps(view))
    manager.can("POST", f"{runs}/run-1/interrupt", 200, json.dumps(view))
    manager.can("GET", f"{runs}/run-1", 200, json.dumps(view))
    waits = asked(manager, f"GET {runs}/run-1")
    given = ["exec", "dev", "--kernel", "sub1", "--code", "while True: pass"]
    exits, _ = interrupt(manager, tmp_path, given, sent, waits=waits)
    assert exits == code
    assert asked(manager, f"POST {runs}/run-1/interrupt?kernel=sub1")()


@SIGNALS
def test_open_connection_is_closed_quietly(
    manager: FakeManager,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sent: signal.Signals,
    code: int,
) -> None:
    manager.add_session(
        batch("lab").model_copy(update={"ports": [Port(name="db", protocol="tcp")]})
    )
    with ExitStack() as opened:
        silent = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        monkeypatch.setenv("MOORAGE_OPENAI_URL", f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
        port = free_port()

        def forwards() -> bool:
            try:
                opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            except ConnectionRefusedError:
                return False
            opened.enter_context(silent.accept()[0])
            return True

        exits, errors = interrupt(
            manager, tmp_path, ["port-forward", "lab", "db", str(port)], sent, waits=forwards
        )

    assert (exits, errors) == (code, "moorage: forwarding to db of lab; Ctrl-C ends it\n")
    assert manager.requests[-1].startswith("DELETE ")  # its access token


def test_sigterm_in_a_finalizer_is_not_lost() -> None:
    class Finalized:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    async def wait() -> None:
        Finalized()
        # this would never end if the signal were lost, or noticed only on another event
        await asyncio.Event().wait()

    # a process that was started in the background ignores SIGINT
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with terminated_like_ctrl_c() as interrupted, pytest.raises(KeyboardInterrupt):
            asyncio.run(wait())
    finally:
        signal.signal(signal.SIGINT, before)

    assert interrupted.exit_code == 143
