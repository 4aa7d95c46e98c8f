"""``moorage run -i`` and ``--rm``, and ``moorage rename``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from fake_manager import FakeManager
from invoke import Run
from scripted_session import batch, runs

from moorage.cli.piped_input import FEEDER, reading_from_pipe
from moorage.common.model.reasons import Reason
from moorage.common.views.resources import SessionView


@pytest.mark.parametrize("data", [b"", b"x\n", b"\0\xff" * 100_000])
def test_a_program_reads_what_is_copied_into_its_pipe(tmp_path: Path, data: bytes) -> None:
    env = os.environ | {"TMPDIR": str(tmp_path), "MOORAGE_KERNEL_ID": "k1"}
    pipe = subprocess.PIPE
    with (
        subprocess.Popen([*FEEDER], env=env, stdin=pipe) as feeder,
        subprocess.Popen(reading_from_pipe(["cat", "-"]), env=env, stdout=pipe) as program,
    ):
        assert feeder.stdin is not None
        feeder.stdin.write(data[:1])
        feeder.stdin.write(data[1:])
        feeder.stdin.close()
        assert program.communicate(timeout=30)[0] == data
        assert (feeder.wait(30), program.wait(30)) == (0, 0)

    assert list(tmp_path.iterdir()) == []


def test_a_missing_program_is_127_with_input_too(tmp_path: Path) -> None:
    env = os.environ | {"TMPDIR": str(tmp_path), "MOORAGE_KERNEL_ID": "k1"}
    with subprocess.Popen([*FEEDER], env=env, stdin=subprocess.DEVNULL) as feeder:
        assert (
            subprocess.run(reading_from_pipe(["no-such-program"]), env=env, timeout=30).returncode
            == 127
        )
        assert feeder.wait(30) == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["-i", "--retries", "2"], "no --retries"),
        (["-i", "--cluster", "2"], "no --cluster"),
        (["-i", "--reuse", "both"], "no --reuse"),
        (["-i", "-d"], "cannot be combined with --detach"),
        (["--rm", "--no-wait"], "--rm needs this command to wait"),
    ],
)
def test_what_input_and_removal_cannot_go_with(
    manager: FakeManager, moorage: Run, options: list[str], named: str
) -> None:
    result = moorage("run", *options, "--", "cat")
    assert (result.exit_code, named in result.stderr) == (2, True), result.stderr
    assert manager.sessions == []


def test_input_needs_a_program(moorage: Run) -> None:
    result = moorage("run", "-i", "--template", "train")
    assert (result.exit_code, "--stdin needs a program on the command line" in result.stderr) == (
        2,
        True,
    )


def test_rm_removes_the_record_and_keeps_log_and_exit_code(
    manager: FakeManager, moorage: Run
) -> None:
    manager.next_session(**runs(3, Reason.EXIT_NONZERO, b"one\n"))
    result = moorage("run", "--rm", "--", "false")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "one\n", "")
    assert manager.sessions == []


def test_rm_says_what_could_not_be_removed(manager: FakeManager, moorage: Run) -> None:
    manager.next_session(**runs(0, Reason.EXIT_ZERO, b"one\n"))
    manager.store.sessions.removable = False
    result = moorage("run", "--rm", "--name", "job", "--", "true")
    assert (result.exit_code, result.stdout) == (0, "one\n")
    assert "job was not removed" in result.stderr


def test_rename(manager: FakeManager, moorage: Run) -> None:
    manager.add_session(batch("train-7"))
    assert moorage("rename", "train-7", "baseline").stdout == "train-7 is now called baseline\n"
    assert manager.sessions[0].name == "baseline"
    assert moorage("rename", "baseline", "b2", "-o", "name").stdout == "b2\n"
    view = SessionView.model_validate_json(moorage("rename", "b2", "b3", "-o", "json").stdout)
    assert view.name == "b3"


def test_a_name_in_other_letters_is_refused_with_one_that_works(
    manager: FakeManager, moorage: Run
) -> None:
    manager.add_session(batch("train-7"))
    for arguments in (
        ("rename", "train-7", "Prüfung 1"),
        ("run", "--name", "Prüfung 1", "--", "x"),
    ):
        result = moorage(*arguments)
        assert (result.exit_code, "for example 'Prufung-1'" in result.stderr) == (2, True), (
            result.stderr
        )
