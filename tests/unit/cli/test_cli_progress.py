"""Progress of a slow start."""

from __future__ import annotations

import io

from rich.console import Console

from moorage.cli.progress import Progress
from moorage.cli.summary import Stage


def test_progress_prints_each_activity_once_without_a_terminal() -> None:
    out = io.StringIO()
    history = [Stage("queued", 0.0), Stage("starting", 0.5)]
    with Progress(Console(file=out, width=80), "job") as progress:
        for doing in (
            "",
            "pulling team/tool:1",
            "pulling team/tool:1: 1 of 980 MB",
            "pulling team/tool:1: 2 of 980 MB",
            "unpacking team/tool:1: 3 of 7 layers",
            "",
        ):
            progress.show(history, "", doing)
    lines = [line.strip() for line in out.getvalue().splitlines()]
    assert lines[2:] == ["job: pulling team/tool:1", "job: unpacking team/tool:1"]
