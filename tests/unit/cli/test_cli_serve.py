"""``moorage serve``: progress, the sample request, and every failure."""

import json
from pathlib import Path

import pytest
from fake_manager import FakeManager
from invoke import Run
from scripted_session import CREATED_AT, START, fails_with

from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.status import Status
from moorage.common.views.resources import Hold, Problem

# A dumb terminal, on which a spinner is not animated.
NO_ROOM = Hold(
    reason=Reason.INSUFFICIENT_RESOURCES,
    text="no free GPU",
    refusals=["2 agents: cuda.device"],
    attempts=3,
    at=CREATED_AT,
)
TERMINAL = {"FORCE_COLOR": "1", "TERM": "dumb"}


def test_serve_shows_progress_and_prints_a_sample_request(
    manager: FakeManager, moorage: Run, tmp_path: Path
) -> None:
    gguf = tmp_path / "tiny.gguf"
    gguf.touch()
    result = moorage(
        "serve",
        str(gguf),
        "--resources",
        "cpu=2",
        "--arg=-c",
        "--arg=512",
        "--env",
        "A=b",
        **TERMINAL,
    )
    assert result.exit_code == 0, result.stderr
    spec = manager.endpoints["tiny"]
    assert (spec.engine, spec.model, spec.args, spec.env) == (
        "llamacpp",
        str(gguf),
        ["-c", "512"],
        {"A": "b"},
    )
    assert spec.resources == {"cpu": "2", "mem": "1GiB"}
    stages = [line.split(": ")[-1] for line in result.stderr.splitlines() if " s  tiny: " in line]
    assert stages == ["queued", "scheduled", "starting", "loading", "ready"]
    assert manager.openai_url in result.stdout
    assert '"Authorization: Bearer $MOORAGE_API_KEY"' in result.stdout
    assert "moorage chat tiny" in result.stdout


def test_serve_waits_for_all_replicas(manager: FakeManager, moorage: Run) -> None:
    result = moorage("serve", "org/big", "--replicas", "3", "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)["endpoint"]["ready"]) == (0, 3)


def test_serve_fails_when_there_is_room_for_some_replicas_only(
    manager: FakeManager, moorage: Run
) -> None:
    manager.next_session(script=[], hold=NO_ROOM)
    created = json.loads(
        moorage("serve", "org/big", "--replicas", "2", "--no-wait", "-o", "json").stdout
    )
    manager.can("POST", "/v1/endpoints", 201, json.dumps(created["endpoint"]))
    first = manager.sessions[0]
    first.script = list(START)
    first.hold = None
    result = moorage("serve", "org/big", "--replicas", "2")
    assert result.exit_code == 1
    assert "1 of 2 replicas of big are ready" in result.stderr
    assert "1 of 2 replicas ready" in result.stdout, "what serves can be asked"
    assert "big" in manager.endpoints


def test_serve_prints_only_json_or_name_to_stdout(manager: FakeManager, moorage: Run) -> None:
    result = moorage("serve", "org/big", "-o", "json")
    answer = json.loads(result.stdout)
    assert (answer["endpoint"]["name"], answer["endpoint"]["spec"]["engine"]) == ("big", "vllm")
    assert answer["endpoint"]["ready"] == 1
    assert moorage("-o", "name", "serve", "org/big2", "--gpus", "2").stdout == "big2\n"
    assert manager.endpoints["big2"].resources == {"cpu": "1", "mem": "1GiB", "cuda.device": "2"}


def test_serve_with_a_custom_engine(manager: FakeManager, moorage: Run) -> None:
    args = ("serve", "mine", "--probe", "/ok", "--", "python", "-m", "server", "--port", "{port}")
    assert moorage(*args).exit_code == 0
    spec = manager.endpoints["mine"]
    assert (spec.engine, spec.command[-1]) == ("custom", "{port}")
    assert spec.probe is not None
    assert spec.probe.path == "/ok"


def test_serve_with_adapters(manager: FakeManager, moorage: Run) -> None:
    assert (
        moorage(
            "serve", "org/big", "--adapter", "sql=/loras/sql", "--adapter", "chat=a/b"
        ).exit_code
        == 0
    )
    found = [(one.name, one.source) for one in manager.endpoints["big"].adapters]
    assert found == [("sql", "/loras/sql"), ("chat", "a/b")]


def test_serve_with_fallbacks(manager: FakeManager, moorage: Run) -> None:
    outside = "gpt,url=https://api.example.com/v1,secret=theirs"
    args = ("serve", "org/big", "--fallback", "small", "--fallback", outside)
    assert "has no secret 'theirs'" in moorage(*args).stderr
    assert moorage("secrets", "set", "theirs", stdin="sk-1").exit_code == 0
    assert moorage(*args).exit_code == 0
    [small, provider] = manager.endpoints["big"].routing.fallbacks
    assert (small.model, small.url) == ("small", None)
    assert (provider.model, provider.url, provider.secret) == (
        "gpt",
        "https://api.example.com/v1",
        "theirs",
    )
    result = moorage("serve", "org/other", "--fallback", "gpt,key=sk-1")
    assert result.exit_code == 2
    assert "unknown field 'key'" in result.stderr


def test_serve_with_a_limit_of_bodies(manager: FakeManager, moorage: Run) -> None:
    assert moorage("serve", "org/big", "--max-body", "20MiB").exit_code == 0
    assert manager.endpoints["big"].routing.max_body_bytes == 20 << 20
    result = moorage("serve", "org/other", "--max-body", "20")
    assert result.exit_code == 2
    assert "--max-body='20'" in result.stderr


def test_serve_reports_a_failed_start_and_deletes_the_endpoint(
    manager: FakeManager, moorage: Run
) -> None:
    manager.next_session(
        **fails_with(Reason.OOM, "used [red]9GiB[/red]", "loading\nKilled \x1b[31m!\n")
    )
    result = moorage("serve", "org/big")
    assert result.exit_code == 1
    assert result.stdout == ""
    last = result.stderr.splitlines()[-1]
    assert last.startswith(
        "moorage: big failed: the program used more memory than it was allocated (oom): used [red]9GiB[/red]"
    )
    assert REASONS[Reason.OOM].next_step in last
    assert "the endpoint was deleted" in last
    assert "Killed \\x1b[31m!" in result.stderr
    assert manager.endpoints == {}


def test_serve_keep_leaves_a_failed_endpoint(manager: FakeManager, moorage: Run) -> None:
    manager.next_session(**fails_with(Reason.MODEL_MISSING, "", ""))
    result = moorage("serve", "org/big", "--keep")
    assert result.exit_code == 1
    assert "kept" in result.stderr
    assert "big" in manager.endpoints


def test_serve_timeout_names_what_the_endpoint_waits_for(
    manager: FakeManager, moorage: Run
) -> None:
    manager.next_session(script=[], hold=NO_ROOM)
    result = moorage("serve", "org/big", "--timeout", "0.3s")
    assert result.exit_code == 124
    step = REASONS[Reason.INSUFFICIENT_RESOURCES].next_step
    assert f"no free GPU; 2 agents: cuda.device; {step}" in result.stderr
    assert result.stderr.count("no free GPU") == 1
    assert "big" in manager.endpoints


def test_serve_fails_when_the_endpoint_is_deleted(manager: FakeManager, moorage: Run) -> None:
    gone = Problem(title="x", status=404, detail="no endpoint", code="not-found")
    manager.can("GET", "/v1/endpoints/big", 404, gone)
    result = moorage("serve", "org/big")
    assert result.exit_code == 1
    assert "deleted during the wait" in result.stderr


def test_serve_tolerates_a_short_outage_of_the_manager(manager: FakeManager, moorage: Run) -> None:
    away = Problem(
        title="x", status=503, detail="the database does not answer", code="store-unavailable"
    )
    manager.can("GET", "/v1/endpoints/big", 503, away, times=3)
    result = moorage("serve", "org/big")
    assert result.exit_code == 0, result.stderr


def test_serve_returns_at_once_without_wait_or_replicas(manager: FakeManager, moorage: Run) -> None:
    manager.next_session(script=[])
    assert moorage("serve", "org/a", "--no-wait").exit_code == 0
    assert moorage("serve", "org/b", "--replicas", "0").exit_code == 0
    assert [s.status for s in manager.sessions] == [Status.PENDING]


def test_serve_refuses_a_name_in_use(manager: FakeManager, moorage: Run) -> None:
    moorage("serve", "org/big")
    result = moorage("serve", "other/big")
    assert result.exit_code == 1
    # The agent has no vLLM, which is reported first.
    assert result.stderr.endswith(
        "\nmoorage: an endpoint named 'big' exists already; choose another name\n"
    )
    assert "big" in manager.endpoints


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("serve",), "Missing argument"),
        (("serve", "m", "--engine", "nope"), "'llamacpp', 'vllm' or 'custom'"),
        (("serve", "m", "--engine", "custom"), "requires `command`"),
        (("serve", "m", "--name", "a b"), "a name consists of 1 to 128"),
        (("serve", "m", "--resources", "cpu"), "--resources 'cpu' is not NAME=VALUE"),
        (("serve", "m", "--resources", "disk=1"), "unknown slot 'disk'"),
        (("serve", "m", "--env", "MOORAGE_X=1"), "is reserved"),
        (("serve", "m", "--gpus", "1.5"), "'--gpus': Input should be a valid integer"),
        (("serve", "m", "--replicas", "-1"), "greater than or equal to 0"),
        (("serve", "m", "--nonsense"), "--nonsense"),
        (("serve", "///"), "no name can be derived"),
        (("nonsense",), "nonsense"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    manager: FakeManager, moorage: Run, args: tuple[str], message: str
) -> None:
    result = moorage(*args)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.startswith("moorage: ")
    assert result.stderr.count("\n") == 1
    assert manager.endpoints == {}
