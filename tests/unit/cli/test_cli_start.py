"""``moorage start``, and the next steps that it prints."""

import json

import pytest
from fake_manager import FakeManager
from invoke import Run
from scripted_session import ScriptedSession, batch, fails_with

from moorage.common.model.reasons import Reason
from moorage.common.model.status import SessionType, Status


def started(manager: FakeManager) -> ScriptedSession:
    [one] = manager.sessions
    return one


def test_start_waits_until_running_and_prints_next_steps(
    manager: FakeManager, moorage: Run
) -> None:
    result = moorage(
        "start", "--name", "dev", "--gpus", "1", "--lifetime", "60s", FORCE_COLOR="1", TERM="dumb"
    )
    assert (result.exit_code, result.stdout) == (0, "dev\n")
    one = started(manager)
    assert one.status is Status.RUNNING
    assert (one.spec.type, one.spec.command, one.spec.max_lifetime_s) == (
        SessionType.INTERACTIVE,
        [],
        60,
    )
    assert one.spec.resources["cuda.device"] == "1"
    assert "dev: running" in result.stderr
    assert "moorage logs -f dev" in result.stderr
    assert "moorage stop dev" in result.stderr


def test_start_runs_a_given_program(manager: FakeManager, moorage: Run) -> None:
    result = moorage("start", "-o", "json", "--", "jupyter", "lab", "--name", "x")
    assert json.loads(result.stdout)["status"] == "RUNNING"
    assert started(manager).spec.command == ["jupyter", "lab", "--name", "x"]


def test_start_without_waiting(manager: FakeManager, moorage: Run) -> None:
    result = moorage("start", "--no-wait", "--name", "dev")
    assert result.stdout == "dev\n"
    assert "moorage stop dev" in result.stderr


def test_start_reports_a_failure_with_its_log(manager: FakeManager, moorage: Run) -> None:
    manager.next_session(**fails_with(Reason.CREATE_FAILED, "no such file", "no such program\n"))
    result = moorage("start", "--", "nonsense")
    assert result.exit_code == 1
    assert "is not running" in result.stderr
    assert "no such program" in result.stderr


def test_start_honours_its_timeout(manager: FakeManager, moorage: Run) -> None:
    manager.next_session(script=[])
    result = moorage("start", "--timeout", "0.2s")
    assert result.exit_code == 124
    assert "nothing was stopped" in result.stderr


def test_describe_prints_next_steps_of_live_sessions_only(
    manager: FakeManager, moorage: Run
) -> None:
    job = manager.add_session(batch("job"))
    assert "moorage stop job" in moorage("describe", "job").stdout
    job.stop(Reason.USER_REQUESTED)
    job.advance()
    assert "moorage stop job" not in moorage("describe", "job").stdout


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("cp", "here", "there"), 2, "one path must be in a session"),
        (("cp", "one:a", "two:b"), 2, "one path must be in a session"),
        (("cp", "./not-there", "dev:"), 3, "there is no local path not-there"),
        (("cp", "dev:x", "not/there/x"), 3, "there is no local directory"),
        (("cp", "dev:..", "."), 2, "ends in two dots"),
        (("exec", "-it", "dev", "--", "sh"), 2, "-t needs a terminal"),
        (("exec", "nobody", "--", "true"), 3, ""),
        (("exec", "dev", "--code", "1", "--env", "A=1"), 2, "--env applies to a command"),
        (("exec", "-t", "dev", "--repl"), 2, "--tty applies to a command"),
        (
            ("exec", "dev", "--language", "bash", "--", "x"),
            2,
            "--language, --timeout and --save-images apply only to --code",
        ),
    ],
)
def test_cp_and_exec_refuse_invalid_arguments(
    moorage: Run, args: tuple[str, ...], code: int, message: str
) -> None:
    result = moorage(*args)
    assert result.exit_code == code, result.stderr
    assert message in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    "command",
    ["start --no-wait --env HF_TOKEN=abc -- x", "run --detach --env HF_TOKEN=abc -- x",
     "serve org/big --no-wait --env HF_TOKEN=abc"],
)  # fmt: skip
def test_a_secret_among_the_variables_is_warned_about(
    manager: FakeManager, moorage: Run, command: str
) -> None:
    result = moorage(*command.split())
    assert result.exit_code == 0, result.stderr
    (told,) = [line for line in result.stderr.splitlines() if "warning" in line]
    assert told.startswith("moorage: warning: `env` has values that look like secrets")
    assert "--secret HF_TOKEN=NAME" in told
    assert "abc" not in told
    harmless = command.replace("HF_TOKEN", "HF_HOME").replace("org/big", "org/other")
    again = moorage(*harmless.split())
    assert (again.exit_code, "warning" in again.stderr) == (0, False)
