"""Options of a session as in Docker, and files with a session."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_manager import FakeManager
from invoke import Run

from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import SessionType

YAML = """
name: eval
command: [python, eval.py]
resources: {cpu: 2, cuda.device: 1}
env: {SEED: "1", MODE: fast}
timeout_s: 3600
"""
TOML = """
name = "eval"
command = ["python", "eval.py"]
timeout_s = 3600
[resources]
cpu = 2
"cuda.device" = 1
[env]
SEED = "1"
MODE = "fast"
"""


def created(manager: FakeManager) -> SessionSpec:
    [one] = manager.sessions
    return one.spec


@pytest.mark.parametrize("verb", ["run", "start"])
def test_options_of_docker(manager: FakeManager, moorage: Run, verb: str) -> None:
    options = ("--cpus", "1.5", "--memory", "4GiB", "--gpus", "2", "-e", "SEED=1", "-e", "A=b")
    assert moorage(verb, "--no-wait", *options, "--", "true").exit_code == 0
    spec = created(manager)
    assert spec.resources == {"cpu": "1.5", "mem": "4GiB", "cuda.device": "2"}
    assert spec.env == {"SEED": "1", "A": "b"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--cpus 2 --resources cpu=3", "--cpus 2 and --resources cpu=3 exclude each other"),
        ("--memory 2GiB --resources mem=1GiB", "--memory 2GiB and --resources mem=1GiB exclude"),
        ("--gpus 1 --resources cuda.device=2", "--gpus 1 and --resources cuda.device=2 exclude"),
        ("--cpus many", "many"),
        ("--memory lots", "lots"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "start", "plan"])
def test_resources_that_conflict_are_refused(
    manager: FakeManager, moorage: Run, verb: str, options: str, message: str
) -> None:
    refused = moorage(verb, *options.split(), "--", "true")
    assert refused.exit_code == 2
    assert message in refused.stderr
    assert not manager.sessions


@pytest.mark.parametrize(
    ("command", "hinted"),
    [
        (("run", "python3", "-c", "1"), True),
        (("start", "ls", "-la"), True),
        (("exec", "dev", "ls", "-la"), True),
        (("run", "--gpusx", "1"), False),
        (("run", "-Z", "--", "ls"), False),
        (("ps", "-Z"), False),
    ],
)
def test_a_missing_double_dash_is_named(
    moorage: Run, command: tuple[str, ...], hinted: bool
) -> None:
    refused = moorage(*command)
    assert refused.exit_code == 2
    assert "No such option" in refused.stderr
    assert ("put -- before the program" in refused.stderr) == hinted


@pytest.mark.parametrize(("name", "text"), [("eval.yaml", YAML), ("eval.toml", TOML)])
def test_a_session_from_a_file(
    manager: FakeManager, moorage: Run, tmp_path: Path, name: str, text: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert moorage("run", "--no-wait", "-f", str(file)).exit_code == 0
    spec = created(manager)
    assert (spec.name, spec.type, spec.command) == (
        "eval",
        SessionType.BATCH,
        ["python", "eval.py"],
    )
    assert {slot: str(amount) for slot, amount in spec.resources.items()} == {
        "cpu": "2",
        "mem": "1GiB",
        "cuda.device": "1",
    }
    assert (spec.env, spec.timeout_s) == ({"SEED": "1", "MODE": "fast"}, 3600)


def test_options_override_the_file(manager: FakeManager, moorage: Run, tmp_path: Path) -> None:
    file = tmp_path / "eval.yaml"
    file.write_text(YAML)
    options = ("--name", "other", "--cpus", "4", "-e", "SEED=2", "--timeout", "60s")
    assert moorage("run", "--no-wait", "-f", str(file), *options, "--", "true").exit_code == 0
    spec = created(manager)
    assert (spec.name, spec.command, spec.timeout_s) == ("other", ["true"], 60)
    assert (spec.resources["cpu"], spec.resources["cuda.device"]) == ("4", 1)
    assert spec.env == {"SEED": "2", "MODE": "fast"}


def test_a_file_without_resources_gets_the_defaults(
    manager: FakeManager, moorage: Run, tmp_path: Path
) -> None:
    file = tmp_path / "dev.yaml"
    file.write_text("type: interactive\nname: dev\n")
    assert moorage("start", "--no-wait", "-f", str(file), "--gpus", "1").exit_code == 0
    assert created(manager).resources == {"cpu": "1", "mem": "1GiB", "cuda.device": "1"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("comand: [true]", "has no field 'comand'; did you mean 'command'?"),
        ("[1, 2]", "holds no session"),
        ("command: [", "is not YAML"),
        ("type: interactive", "holds a session of type interactive; this command needs batch"),
        ("command: [true]\nretries: -1", "retries"),
        ("command: [true]\nresources: many", "resources"),
        ("#" * (1 << 20) + "#", "larger than 1 MiB"),
        (None, "cannot be read: No such file"),
    ],
)
def test_files_without_a_session_are_refused(
    manager: FakeManager, moorage: Run, tmp_path: Path, text: str | None, message: str
) -> None:
    file = tmp_path / "job.yaml"
    if text is not None:
        file.write_text(text)
    refused = moorage("run", "--no-wait", "-f", str(file))
    assert refused.exit_code == 2
    assert message in refused.stderr
    assert not manager.sessions


def test_a_file_and_a_template_exclude_each_other(moorage: Run, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(YAML)
    refused = moorage("run", "-f", str(file), "--template", "train")
    assert refused.exit_code == 2
    assert "--file and --template exclude each other" in refused.stderr


def test_plan_reads_sessions_and_manifests(
    manager: FakeManager, moorage: Run, tmp_path: Path
) -> None:
    session = tmp_path / "eval.yaml"
    session.write_text(YAML)
    planned = moorage("plan", "-f", str(session), "--cpus", "3")
    assert "fits" in planned.stdout
    assert not manager.sessions
    manifest = tmp_path / "cluster.yaml"
    manifest.write_text("kind: quota\nname: user/ann\nspec: {sessions: 3}\n")
    assert "user/ann" in moorage("plan", "-f", str(manifest)).stdout
    refused = moorage("plan", "-f", str(manifest), "--gpus", "1")
    assert "--file cannot be combined with options of a session" in refused.stderr
