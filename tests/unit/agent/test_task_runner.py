"""The task runner as a process, with the files through which its agent talks to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.agent.tasks import folder, runner_source
from moorage.agent.tasks.journal import Journal
from moorage.common.model.task_states import TaskState


class Running:
    def __init__(self, path: Path, *command: str, workers: int = 2, timeout_s: float = 0) -> None:
        self.path = path
        options = {"folder": str(path), "workers": workers, "timeout_s": timeout_s, "grace_s": 0.3}
        self.log = path.with_suffix(".log")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", runner_source(), json.dumps(options), *command],
                stdout=log,
                env=os.environ | {"MOORAGE_PROGRESS": str(path.with_suffix(".progress"))},
            )
        self.until(lambda: folder.exists(path))

    def give(self, *values: Any) -> None:
        assert folder.append(self.path, list(values))

    def journal(self) -> Journal:
        journal = Journal()
        journal.read(folder.read_from(self.path, "journal", 0))
        return journal

    def until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def states(self) -> dict[int, TaskState]:
        return {number: end.state for (number, _), end in self.journal().ended.items()}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(*command: str, **options: Any) -> Running:
        started.append(Running(tmp_path / f"tasks-{len(started)}", *command, **options))
        return started[-1]

    yield begin
    for running in started:
        running.process.kill()
        running.process.wait()


END = {"end": "all done", "success": True}


def test_it_runs_each_task_and_says_how_it_ended(start: Callable[..., Running]) -> None:
    running = start("/bin/sh", "-c", 'echo "$0 $MOORAGE_TASK"; exit {}')
    running.give({"done": 0, "of": 2}, [1, 1, 1, "0"], [2, 2, 1, "3"])
    running.give(END)
    assert running.process.wait(30) == 0
    ended = running.journal().ended
    assert {ref: end.exit_code for ref, end in ended.items()} == {(1, 1): 0, (2, 1): 3}
    assert ended[2, 1].output == b"/bin/sh 2\n"
    log = running.log.read_text()
    assert "[1] /bin/sh 1\n" in log
    assert log.endswith("moorage: all done\n")
    assert (
        json.loads(running.path.with_suffix(".progress").read_text().splitlines()[-1])["step"] == 2
    )


def test_the_line_is_the_last_argument_unless_the_command_names_it(
    start: Callable[..., Running],
) -> None:
    running = start("/bin/echo", "n={#}")
    running.give([1, 7, 1, "a  b"], END)
    assert running.process.wait(30) == 0
    assert running.journal().ended[7, 1].output == b"n=7 a  b\n"


@pytest.mark.parametrize(("program", "code"), [("/no/such/program", 127), ("/etc/passwd", 126)])
def test_a_program_that_cannot_run_is_a_failed_task(
    start: Callable[..., Running], program: str, code: int
) -> None:
    running = start(program)
    running.give([1, 1, 1, "x"], {"end": "failed", "success": False})
    assert running.process.wait(30) == 1
    assert running.journal().ended[1, 1].exit_code == code


def test_it_runs_as_many_as_it_has_workers(start: Callable[..., Running]) -> None:
    running = start("/bin/sleep", workers=3)
    running.give(*([n, n, 1, "0.3"] for n in range(1, 10)), END)
    most = 0
    while running.process.poll() is None:
        most = max(most, len(running.journal().started))
        time.sleep(0.01)

    assert most == 3
    assert set(running.states().values()) == {TaskState.SUCCEEDED}


def test_a_task_over_its_time_is_killed_with_what_it_has_started(
    start: Callable[..., Running],
) -> None:
    running = start("/bin/sh", "-c", timeout_s=0.3)
    running.give([1, 1, 1, "trap '' TERM; sleep 61.5 & wait; sleep 61.5"], [2, 2, 1, "true"], END)
    assert running.process.wait(30) == 0
    assert running.states() == {1: TaskState.FAILED, 2: TaskState.SUCCEEDED}
    assert running.journal().ended[1, 1].exit_code == -signal.SIGKILL
    assert running.journal().ended[1, 1].detail == "its time limit was reached"
    running.until(lambda: not _sleeps("61.5"))


def _sleeps(seconds: str) -> bool:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if command[:2] == [b"sleep", seconds.encode()]:
            return True
    return False


def test_sigterm_stops_what_runs_and_starts_nothing_else(start: Callable[..., Running]) -> None:
    running = start("/bin/sh", "-c", workers=1)
    running.give([1, 1, 1, "sleep 60"], [2, 2, 1, "true"])
    running.until(lambda: running.journal().started)
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(30) == 143
    assert running.states() == {1: TaskState.LOST}


def test_a_task_that_ends_well_after_sigterm_has_succeeded(start: Callable[..., Running]) -> None:
    running = start("/bin/sh", "-c", workers=1)
    running.give([1, 1, 1, "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"])
    running.until(lambda: "up" in running.log.read_text())
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(30) == 143
    assert running.states() == {1: TaskState.SUCCEEDED}


def test_other_signals_reach_the_tasks(start: Callable[..., Running]) -> None:
    running = start("/bin/sh", "-c", workers=1)
    running.give([1, 1, 1, "trap 'exit 5' USR1; echo up; while :; do sleep 0.05; done"], END)
    running.until(lambda: "up" in running.log.read_text())
    running.process.send_signal(signal.SIGUSR1)
    assert running.process.wait(30) == 0
    assert running.journal().ended[1, 1].exit_code == 5


def test_killed_it_leaves_what_was_running_without_an_end(start: Callable[..., Running]) -> None:
    running = start("/bin/sleep", workers=1)
    running.give([1, 1, 1, "0"], [2, 2, 1, "3"], [3, 3, 1, "0"])
    running.until(lambda: (2, 1) in running.journal().started)
    running.process.kill()
    running.process.wait()
    journal = running.journal()
    assert running.states() == {1: TaskState.SUCCEEDED}
    assert journal.started.keys() == {(2, 1)}


def test_a_torn_line_of_the_queue_is_skipped_and_written_again(
    start: Callable[..., Running],
) -> None:
    running = start("/bin/echo")
    with (running.path / "queue").open("ab") as queue:
        queue.write(b'[1, 1, 1, "first"]\n[2, 2, 1, "sec')

    assert folder.queue_state(running.path).seq == 1
    running.give([2, 2, 1, "second"], END)
    assert running.process.wait(30) == 0
    assert [end.output for _, end in sorted(running.journal().ended.items())] == [
        b"first\n",
        b"second\n",
    ]


def test_output_is_kept_to_its_end_and_long_lines_are_cut(start: Callable[..., Running]) -> None:
    running = start("/bin/sh", "-c")
    running.give([1, 1, 1, "head -c 100000 /dev/zero | tr '\\0' x; printf '\\377\\000end'"], END)
    assert running.process.wait(30) == 0
    output = running.journal().ended[1, 1].output
    assert len(output) <= 4096
    assert output.endswith(b"end")
    assert max(map(len, running.log.read_bytes().splitlines())) < 4200


def test_links_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text('[1, 1, 1, "x"]\n')
    for name, make in (("linked", os.symlink), ("hard", os.link)):
        path = tmp_path / name
        path.mkdir()
        make(secret, path / "queue")
        assert folder.read_from(path, "queue", 0) == b""
        assert not folder.append(path, [[1]])

    (tmp_path / "folder").symlink_to(tmp_path)
    assert not folder.append(tmp_path / "folder", [[1]])
    assert secret.read_text() == '[1, 1, 1, "x"]\n'
