"""Everyday use: several names, detached runs, variable files, interrupts, exit codes and hints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from fake_manager import KEY, FakeManager
from invoke import Run
from scripted_session import batch, fails_with, runs
from tests.forked_command import ForkedCommand

from moorage.common.model.code_runs import RunStatus
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec, Probe
from moorage.common.model.status import Status
from moorage.common.views.executions import ExecutionView
from moorage.common.views.pending import PlanView, WhyView


def custom(name: str) -> EndpointSpec:
    return EndpointSpec(name=name, engine="custom", command=["serve"], probe=Probe())


def test_stop_takes_several_names(manager: FakeManager, moorage: Run) -> None:
    manager.add_session(batch("one"))
    manager.add_session(batch("two"))
    manager.add_endpoint(custom("tiny"))
    result = moorage("stop", "one", "tiny", "two")
    assert (result.exit_code, result.stdout.split()) == (0, ["one", "tiny", "two"])
    assert not manager.endpoints


def test_stop_with_an_unknown_name_stops_nothing(manager: FakeManager, moorage: Run) -> None:
    manager.add_session(batch("one"))
    result = moorage("stop", "one", "nobody")
    assert (result.exit_code, "'nobody'" in result.stderr) == (3, True)
    assert manager.sessions[0].status is not Status.TERMINATED
    assert not any(request.endswith("/stop") for request in manager.requests)


def test_stop_without_a_name_says_what_to_give(moorage: Run) -> None:
    result = moorage("stop")
    assert (result.exit_code, "--user" in result.stderr) == (2, True)


def test_stop_all_sessions_of_a_user(manager: FakeManager, moorage: Run) -> None:
    manager.add_session(batch("one"))
    manager.add_session(batch("two"))
    owner = json.loads(moorage("describe", "one", "-o", "json").stdout)["session"]["user"]
    assert moorage("stop", "--user", "nobody").stdout == ""
    assert sorted(moorage("stop", "--user", owner).stdout.split()) == ["one", "two"]


def test_detached_run_prints_the_name(manager: FakeManager, moorage: Run) -> None:
    result = moorage("run", "-d", "--name", "job", "--", "x")
    assert (result.exit_code, result.stdout) == (0, "job\n")


def test_variables_come_from_a_file(manager: FakeManager, moorage: Run, tmp_path: Path) -> None:
    file = tmp_path / "vars"
    file.write_text("# comment\nSEED=1\n\nPATHS=a=b c\nHERE_ONLY\nNOWHERE_AT_ALL\nLEVEL=low\n")
    args = ("run", "-d", "--env-file", str(file), "--env", "LEVEL=high", "--", "x")
    assert moorage(*args, HERE_ONLY="yes").exit_code == 0
    assert manager.sessions[0].spec.env == {
        "SEED": "1",
        "PATHS": "a=b c",
        "HERE_ONLY": "yes",
        "LEVEL": "high",
    }


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_only_line_feeds_end_a_line_of_variables(
    manager: FakeManager, moorage: Run, tmp_path: Path, end: str
) -> None:
    """Other separators of ``str.splitlines`` belong to the value, and a byte order mark does not
    belong to the first name."""
    file = tmp_path / "vars"
    variables = {f"A{ord(odd)}": f"one{odd}two" for odd in "\u2028\u2029\x0c\x0b\x85\x1c\x1d\x1e\r"}
    lines = "".join(f"{name}={value}{end}" for name, value in variables.items())
    file.write_bytes(b"\xef\xbb\xbf" + lines.encode())
    assert moorage("run", "-d", "--env-file", str(file), "--", "x").exit_code == 0
    assert manager.sessions[0].spec.env == variables


def test_models_and_commands_take_variables_from_a_file(
    manager: FakeManager, moorage: Run, tmp_path: Path
) -> None:
    file = tmp_path / "vars"
    file.write_text("SEED=1\nLEVEL=low\n")
    given = ("--env-file", str(file), "--env", "LEVEL=high")
    assert moorage("serve", "org/big", "--no-wait", *given).exit_code == 0
    assert manager.endpoints["big"].env == {"SEED": "1", "LEVEL": "high"}
    manager.add_session(batch("dev"))
    assert moorage("exec", "-i", *given, "dev", "--", "x").exit_code == 7
    [(_, spec, _)] = manager.execs.requests
    assert spec.env == {"SEED": "1", "LEVEL": "high"}


def test_bad_line_in_a_file_of_variables_is_named(moorage: Run, tmp_path: Path) -> None:
    file = tmp_path / "vars"
    file.write_text("SEED=1\nexport X=2\n")
    result = moorage("run", "--env-file", str(file), "--", "x")
    assert (result.exit_code, "line 2: 'export X=2' is not NAME=VALUE" in result.stderr) == (
        2,
        True,
    )
    assert "cannot be read" in moorage("run", "--env-file", "/nowhere", "--", "x").stderr


STARTS = {
    "run": ("run", "--", "x"),
    "start": ("start", "--", "x"),
    "serve": ("serve", "mine", "--engine", "custom", "--", "x"),
}


@pytest.mark.parametrize("verb", STARTS)
@pytest.mark.parametrize(
    ("reason", "detail", "code"),
    [
        (Reason.TIMEOUT, "", 124),
        (Reason.CREATE_FAILED, "cannot run 'x': No such file or directory (use a path)", 127),
        (Reason.CREATE_FAILED, "cannot run the program: No such file or directory", 127),
        (Reason.CREATE_FAILED, 'exec: "x": executable file not found in $PATH: unknown', 127),
        (Reason.CREATE_FAILED, "cannot run '/etc/passwd': Permission denied", 126),
        (Reason.CREATE_FAILED, 'exec: "/etc/passwd": permission denied: unknown', 126),
    ],
)
def test_one_exit_code_for_one_cause(
    manager: FakeManager, moorage: Run, verb: str, reason: Reason, detail: str, code: int
) -> None:
    manager.next_session(**fails_with(reason, detail, ""))
    assert moorage(*STARTS[verb]).exit_code == code


@pytest.mark.parametrize(
    ("reason", "detail"),
    [
        (Reason.CREATE_FAILED, "no room"),
        (
            Reason.CREATE_FAILED,
            "cannot create its directories on this node: No such file or directory",
        ),
        (Reason.EXIT_NONZERO, ""),
    ],
)
def test_run_has_the_exit_code_of_the_program(
    manager: FakeManager, moorage: Run, reason: Reason, detail: str
) -> None:
    manager.next_session(**(runs(9, reason, b"one\n") | {"detail": detail}))
    assert moorage("run", "--", "x").exit_code == 9


@pytest.mark.parametrize(
    ("status", "exit_code", "code"),
    [
        (RunStatus.EXEC_TIMEOUT, None, 124),
        (RunStatus.EXEC_TIMEOUT, 1, 124),
        (RunStatus.FINISHED, None, 1),
        (RunStatus.FINISHED, 1, 1),
        (RunStatus.FINISHED, 0, 0),
        (RunStatus.FINISHED, -9, 137),
    ],
)
def test_exit_code_of_code_in_a_session(
    manager: FakeManager, moorage: Run, status: RunStatus, exit_code: int | None, code: int
) -> None:
    ended = ExecutionView(
        run_id="r1", kernel="python3", status=status, console=[], next=0, exit_code=exit_code
    )
    manager.can("POST", "/v1/sessions/dev/executions", 200, ended)
    assert moorage("exec", "dev", "--code", "1", "--timeout", "1s").exit_code == code


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_interrupted_run_says_what_remains(
    manager: FakeManager, tmp_path: Path, sent: signal.Signals, code: int, stops: bool
) -> None:
    manager.next_session(script=[])
    env = {
        **os.environ,
        "MOORAGE_URL": manager.url,
        "MOORAGE_API_KEY": KEY,
        "MOORAGE_HOME": str(tmp_path),
    }
    env |= {"FORCE_COLOR": "1", "TERM": "dumb"}  # progress
    args = ["run", "--name", "job", *(["--stop-on-interrupt"] if stops else []), "--", "x"]
    waits = ForkedCommand(args, env, stderr=subprocess.PIPE)
    assert waits.stderr is not None

    try:
        assert "queued" in waits.stderr.readline()
        waits.send_signal(sent)
        _, errors = waits.communicate(timeout=30)
    finally:
        waits.kill()

    assert waits.returncode == code
    assert ("is being stopped" if stops else "`moorage stop job` stops it") in errors
    assert any(request.endswith("/stop") for request in manager.requests) is stops
    assert "Traceback" not in errors


def test_plan_that_does_not_fit_fails(manager: FakeManager, moorage: Run) -> None:
    view = PlanView(
        fits=False, resource_group="default", text="no room", conditions=[], basis="unknown"
    )
    manager.can("POST", "/v1/sessions/plan", 200, view)
    assert moorage("plan", "--gpus", "4").exit_code == 1
    manager.can("POST", "/v1/sessions/plan", 200, view.model_copy(update={"fits": True}))
    assert moorage("plan", "--gpus", "4").exit_code == 0


def test_why_of_an_endpoint_that_is_scaled_to_zero_is_that_it_sleeps(
    manager: FakeManager, moorage: Run
) -> None:
    manager.add_endpoint(custom("tiny"))
    view = json.loads(moorage("describe", "tiny", "-o", "json").stdout)["endpoint"]
    view |= {"status": "not_loaded", "replicas": 0, "ready": 0}
    view["sessions"][0] |= {"status": "CANCELLED"}
    manager.can("GET", "/v1/endpoints/tiny", 200, json.dumps(view))
    result = moorage("why", "tiny")
    assert result.exit_code == 3
    assert "tiny is asleep" in result.stderr
    assert "moorage scale tiny 1" in result.stderr


def test_why_of_an_endpoint_is_about_its_replica(manager: FakeManager, moorage: Run) -> None:
    manager.add_endpoint(custom("tiny"))
    replica = json.loads(moorage("describe", "tiny", "-o", "json").stdout)["endpoint"]["sessions"][
        0
    ]
    view = WhyView.model_validate(
        {
            "session_id": replica["session_id"],
            "name": replica["name"],
            "status": "PENDING",
            "since": "2026-01-01T00:00:00Z",
            "resource_group": "default",
            "text": "no room now",
            "conditions": [],
            "basis": "unknown",
        }
    )
    manager.can("GET", f"/v1/sessions/{replica['session_id']}/why", 200, view)
    result = moorage("why", "tiny")
    assert (result.exit_code, "no room now" in result.stdout) == (0, True), result.stderr


def test_endpoint_without_replicas_is_asleep(manager: FakeManager, moorage: Run) -> None:
    manager.add_endpoint(custom("tiny"))
    assert moorage("scale", "tiny", "0").stdout == (
        "tiny is asleep; `moorage scale tiny 1` wakes it\n"
    )


def test_long_names_of_facts_do_not_touch_their_values(moorage: Run) -> None:
    lines = moorage("groups", "describe", "default").stdout.splitlines()
    [line] = [line for line in lines if line.startswith("num_retries_to_skip")]
    assert line.split()[0] == "num_retries_to_skip"


@pytest.mark.parametrize(
    ("args", "variables", "source"),
    [
        (("ps",), {"MOORAGE_URL": "ftp://x"}, "MOORAGE_URL: 'ftp://x'"),
        (("ps", "--url", "ftp://x"), {}, "--url: 'ftp://x'"),
        (
            ("ps",),
            {"MOORAGE_API_KEY": "", "MOORAGE_API_KEY_FILE": "/nope"},
            "MOORAGE_API_KEY_FILE: ",
        ),
        (("ps", "--key-file", "/nope"), {}, "--key-file: "),
    ],
)
def test_error_names_the_flag_or_variable(
    moorage: Run, args: tuple[str, ...], variables: dict[str, str], source: str
) -> None:
    result = moorage(*args, **variables)
    assert result.exit_code == 2
    assert source in result.stderr
