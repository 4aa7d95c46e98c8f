"""``moorage run``, ``logs``, ``stop`` and ``scale``."""

import json

import pytest
from fake_manager import FakeManager
from invoke import Run
from scripted_session import batch, runs

from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec, Probe
from moorage.common.model.status import SessionType, Status


def custom(name: str) -> EndpointSpec:
    return EndpointSpec(name=name, engine="custom", command=["serve"], probe=Probe())


def test_run_prints_only_the_log_to_stdout(manager: FakeManager, moorage: Run) -> None:
    manager.next_session(**runs(0, Reason.EXIT_ZERO, b"\xffone\n", b"two\n"))
    result = moorage(
        "run", "--env", "A=b=c", "--timeout", "1m", "--", "python", "-o", "x", "--name", "y"
    )
    assert result.exit_code == 0
    assert result.stdout_bytes == b"\xffone\ntwo\n"
    [session] = manager.sessions
    assert session.spec.command == ["python", "-o", "x", "--name", "y"]
    assert (session.spec.type, session.spec.env, session.spec.timeout_s) == (
        SessionType.BATCH,
        {"A": "b=c"},
        60,
    )


@pytest.mark.parametrize(
    ("code", "reason", "exits"),
    [
        (3, Reason.EXIT_NONZERO, 3),
        (-15, Reason.KILLED, 143),
        (None, Reason.MODEL_MISSING, 1),
        (-9, Reason.TIMEOUT, 124),
    ],
)
def test_run_exits_with_the_code_of_the_program(
    manager: FakeManager, moorage: Run, code: int | None, reason: Reason, exits: int
) -> None:
    manager.next_session(
        **(runs(1, reason) | {"exit_code": code, "log_tail": "boom\n", "detail": "failed"})
    )
    result = moorage("run", "--", "false")
    assert result.exit_code == exits
    assert result.stdout == "boom\n"  # the log itself is gone: its stored tail is shown
    assert (" failed: " in result.stderr) == (reason is not Reason.EXIT_NONZERO)


def test_run_json_keeps_stdout_pure(manager: FakeManager, moorage: Run) -> None:
    manager.next_session(**runs(0, Reason.EXIT_ZERO, b"noise\n"))
    result = moorage("run", "-o", "json", "--", "true")
    assert json.loads(result.stdout)["result"] == "SUCCESS"
    assert "noise" in result.stderr


def test_run_without_waiting_prints_its_name(manager: FakeManager, moorage: Run) -> None:
    assert moorage("run", "--no-wait", "--name", "job", "--", "true").stdout == "job\n"


def test_run_creates_one_session_if_the_response_is_lost(
    manager: FakeManager, moorage: Run
) -> None:
    manager.lost_responses = 1
    assert moorage("run", "--no-wait", "--name", "job", "--", "true").stdout == "job\n"
    assert len(manager.sessions) == 1
    moorage("run", "--no-wait", "--", "true")
    assert len(manager.sessions) == 2, "each call has a key of its own"


def test_run_reads_an_interrupted_log_on(manager: FakeManager, moorage: Run) -> None:
    manager.next_session(**(runs(4, Reason.EXIT_NONZERO, b"one\n", b"two\n") | {"log_breaks": 2}))
    result = moorage("run", "--", "x")
    assert (result.exit_code, result.stdout) == (4, "one\ntwo\n")
    assert "was cut off" not in result.stderr


def test_run_survives_a_log_that_stays_away(
    manager: FakeManager, moorage: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorage.sdk.log_following.OUTAGE_S", -1.0)
    manager.next_session(**(runs(4, Reason.EXIT_NONZERO, b"one\n") | {"log_breaks": 1_000}))
    result = moorage("run", "--", "x")
    assert (result.exit_code, result.stdout) == (4, "one\n")
    assert "was cut off" in result.stderr
    assert "the end of the log was not read" in result.stderr


STEPS = [b"step %05d: loss 0.5\n" % number for number in range(4)]


def test_run_reads_a_log_that_was_rotated_on_and_tells_the_loss(
    manager: FakeManager, moorage: Run
) -> None:
    manager.next_session(
        **(runs(0, Reason.EXIT_ZERO, *STEPS) | {"log_breaks": 1, "log_rotates": 2})
    )
    result = moorage("run", "--name", "job", "--", "x")
    assert (result.exit_code, result.stdout_bytes) == (0, STEPS[0] + STEPS[2] + STEPS[3])
    assert "output of job may be missing here" in result.stderr


@pytest.mark.parametrize("tail", [[], ["--tail", "3"]])
def test_logs_read_a_rotated_log_on(manager: FakeManager, moorage: Run, tail: list[str]) -> None:
    manager.add_session(batch("job"), log=STEPS[:], log_breaks=1, log_rotates=2)
    result = moorage("logs", "-f", "job", *tail)
    assert result.stdout_bytes == STEPS[1 if tail else 0] + STEPS[2] + STEPS[3]
    assert "output of job may be missing here" in result.stderr


def test_run_reads_the_rest_after_the_end(
    manager: FakeManager, moorage: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorage.sdk.log_following.OUTAGE_S", -1.0)
    manager.next_session(**(runs(0, Reason.EXIT_ZERO, *STEPS) | {"log_breaks": 1}))
    result = moorage("run", "--", "x")
    assert (result.exit_code, result.stdout_bytes) == (0, b"".join(STEPS))
    assert "was cut off" in result.stderr
    assert "not read" not in result.stderr


def test_logs_of_a_session_and_of_an_endpoints_newest_replica(
    manager: FakeManager, moorage: Run
) -> None:
    manager.add_session(batch("job"), log=[b"one\n", b"two\n"])
    manager.add_endpoint(custom("org/tiny"), log=[b"\x1b[1mraw\x1b[0m\n"])
    assert moorage("logs", "job", "--tail", "1").stdout == "two\n"
    assert moorage("logs", "-f", "job").stdout == "one\ntwo\n"
    result = moorage("logs", "org/tiny")
    assert result.stdout == "\x1b[1mraw\x1b[0m\n"
    assert "newest replica of org/tiny" in result.stderr


def test_times_of_logs_are_asked_for(manager: FakeManager, moorage: Run) -> None:
    manager.add_session(batch("job"), log=[b"one\n"])
    moorage("logs", "job", "--timestamps", "--since", "2026-05-04T13:00:00Z")
    assert "timestamps=true" in manager.requests[-1]
    assert "since=2026-05-04T13:00:00" in manager.requests[-1]
    moorage("logs", "job")
    assert "timestamps=true" not in manager.requests[-1]
    assert "since=" not in manager.requests[-1]
    refused = moorage("logs", "job", "--since", "yesterday")
    assert refused.exit_code == 2
    assert "--since 'yesterday' is not a time" in refused.stderr


def test_stop_a_session_waits_until_it_has_ended(manager: FakeManager, moorage: Run) -> None:
    manager.add_session(batch("job"), advances_to_stop=3)
    result = moorage("stop", "job", "-o", "json")
    assert json.loads(result.stdout)["status"] == "TERMINATED"
    assert [s.status for s in manager.sessions] == [Status.TERMINATED]


def test_stop_an_endpoint_waits_for_its_replicas(manager: FakeManager, moorage: Run) -> None:
    manager.add_endpoint(custom("org/tiny").model_copy(update={"replicas": 2}))
    other = manager.add_session(batch("org-tiny"))
    assert moorage("stop", "org/tiny").stdout == "org/tiny\n"
    replicas = [s.status for s in manager.sessions if s is not other]
    assert replicas == [Status.TERMINATED, Status.TERMINATED]
    assert other.status is Status.PENDING


def test_stop_honours_its_timeout(manager: FakeManager, moorage: Run) -> None:
    manager.add_session(batch("job"), advances_to_stop=10_000)
    result = moorage("stop", "job", "--timeout", "200ms")
    assert result.exit_code == 124
    assert "job has not ended within 0.20s" in result.stderr
    assert moorage("stop", "job", "--no-wait").exit_code == 0


def test_scale(manager: FakeManager, moorage: Run) -> None:
    manager.add_endpoint(custom("tiny"))
    assert json.loads(moorage("scale", "tiny", "3", "-o", "json").stdout)["replicas"] == 3
    assert moorage("scale", "tiny", "1001").exit_code == 2
    assert moorage("scale", "nope", "1").exit_code == 3


def test_run_passes_dependencies_and_placement(manager: FakeManager, moorage: Run) -> None:
    args = "--after prep --after a:b:any --if-dependency-fails wait --starts-at 2026-12-24T18:00:00+01:00"
    more = "--arch aarch64 --agent-label room=north --label team=vision --on node-1 --on node-2 "
    more += "--priority 70 --no-wait -- true"
    assert moorage("run", *args.split(), *more.split()).exit_code == 0
    spec = next(iter(manager.sessions)).spec
    assert [(d.session, d.on) for d in spec.depends_on] == [("prep", "success"), ("a:b", "any")]
    assert spec.dependency_failed == "wait"
    assert spec.starts_at is not None
    assert spec.starts_at.isoformat() in ("2026-12-24T18:00:00+01:00", "2026-12-24T17:00:00+00:00")
    assert (spec.arch, spec.labels, spec.agents) == (
        "aarch64",
        {"room": "north"},
        ["node-1", "node-2"],
    )
    assert spec.priority == 70
    assert spec.user_labels == {"team": "vision"}


def test_run_in_a_container(manager: FakeManager, moorage: Run) -> None:
    assert moorage("run", "--image", "python:3.12", "--no-wait", "--", "true").exit_code == 0
    spec = next(iter(manager.sessions)).spec
    assert (spec.runtime, spec.image) == ("docker", "python:3.12")
    assert moorage("run", "--no-wait", "--", "true").exit_code == 0
    spec = list(manager.sessions)[-1].spec
    assert (spec.runtime, spec.image) == ("process", None)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--image -x", "image"),
        ("--starts-at 2026-12-24T18:00:00", "--starts-at '2026-12-24T18:00:00' is not a time"),
        ("--starts-at tomorrow", "--starts-at 'tomorrow' is not a time"),
        ("--if-dependency-fails maybe", "'end' or 'wait'"),
        ("--agent-label room", "--agent-label 'room' is not NAME=VALUE"),
        ("--arch x/", "arch"),
        ("--priority 101", "--priority"),
    ],
)
def test_run_refuses_invalid_options(
    manager: FakeManager, moorage: Run, args: str, message: str
) -> None:
    refused = moorage("run", *args.split(), "--", "true")
    assert refused.exit_code == 2
    assert message in refused.stderr
    assert not manager.sessions
