"""The progress text of an image pull, from the engine's messages."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.agent.runtimes.docker.pull_progress import PullProgress


def message(layer: str, status: str, current: int = 0, total: int = 0) -> dict[str, Any]:
    return {"id": layer, "status": status, "progressDetail": {"current": current, "total": total}}


STARTED = [
    {"status": "Pulling from team/tool", "id": "1"},
    message("a", "Already exists"),
    message("b", "Pulling fs layer"),
    message("c", "Waiting"),
]
DOWNLOADING = [
    *STARTED,
    message("b", "Downloading", 412_000_000, 900_000_000),
    message("c", "Downloading", 0, 80_000_000),
]
DOWNLOADED = [
    *DOWNLOADING,
    message("b", "Verifying Checksum"),
    message("b", "Download complete"),
    message("c", "Download complete"),
]
CASES: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no message": ([], "pulling team/tool:1"),
    "known layers": (STARTED, "pulling team/tool:1: 1 of 3 layers"),
    "downloading": (DOWNLOADING, "pulling team/tool:1: 412 of 980 MB, 1 of 3 layers"),
    "small layer": (
        [message("a", "Downloading", 1_250_000, 4_000_000)],
        "pulling team/tool:1: 1.2 of 4.0 MB, 0 of 1 layers",
    ),
    "unpacking": (
        [*DOWNLOADED, message("b", "Extracting", 5, 900)],
        "unpacking team/tool:1: 1 of 3 layers",
    ),
    "done": (
        [*DOWNLOADED, message("b", "Pull complete"), message("c", "Pull complete")],
        "pulling team/tool:1: 3 of 3 layers",
    ),
    "unknown size": (
        [message("a", "Downloading", 4096, -1)],
        "pulling team/tool:1: 0 of 1 layers",
    ),
    "unknown messages": ([{"status": "Sharing", "id": "a"}, {"aux": {}}], "pulling team/tool:1"),
}


@pytest.mark.parametrize("name", CASES)
def test_progress_text(name: str) -> None:
    messages, text = CASES[name]
    progress = PullProgress("team/tool:1")
    for one in messages:
        progress.feed(one)
    assert progress.text() == text
