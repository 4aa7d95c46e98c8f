"""Progress of a slow start."""

from __future__ import annotations

import io

from rich.console import Console

from moorage.cli.context import Cli
from moorage.cli.progress import StageProgress
from moorage.cli.summary import Stage

QUEUED = Stage("queued", 0.0)
STARTED = Stage("starting", 0.5)
FAILED = Stage("queued", 1.0, "exit code 1; retry 1 of 2")


def cli_with(*, terminal: bool) -> Cli:
    """A command whose stderr is kept, with a dumb terminal on which a spinner is not animated, or
    without a terminal."""
    cli = Cli({})
    cli.err_is_terminal = terminal
    cli.err = Console(
        file=io.StringIO(), width=80, force_terminal=terminal, _environ={"TERM": "dumb"}
    )
    return cli


def lines(cli: Cli) -> list[str]:
    assert isinstance(cli.err.file, io.StringIO)
    return [
        line.strip()
        for line in cli.err.file.getvalue().splitlines()
        if " s  " in line or "wait" in line
    ]


def test_without_a_terminal_only_the_reason_of_a_wait_is_told() -> None:
    out = cli_with(terminal=False)
    with StageProgress(out, "job") as progress:
        for _ in range(2):
            progress.show([QUEUED, STARTED], "no free GPU", "pulling team/tool:1: 1 of 980 MB")
    assert lines(out) == ["job waits: no free GPU"]


def test_stages_are_told_once_although_progress_pauses_for_a_log() -> None:
    out = cli_with(terminal=True)
    progress = StageProgress(out, "job")
    for stages in (
        [QUEUED, STARTED],
        [QUEUED, STARTED, FAILED],
        [QUEUED, STARTED, FAILED, STARTED],
    ):
        with progress:
            progress.about("session-1")
            progress.show(stages)

    assert lines(out) == [
        "0.00 s  job: queued",
        "0.50 s  job: starting",
        "1.00 s  job: queued (exit code 1; retry 1 of 2)",
        "0.50 s  job: starting",
    ]


def test_another_replica_tells_only_what_is_new() -> None:
    out = cli_with(terminal=True)
    with StageProgress(out, "tiny") as progress:
        progress.about("replica-1")
        progress.show([QUEUED])
        progress.about("replica-2")
        progress.show([QUEUED, STARTED])
    assert lines(out) == ["0.00 s  tiny: queued", "0.50 s  tiny: starting"]
