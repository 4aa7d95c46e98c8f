"""How far a pull is, from the words of the engine."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.agent.runtimes.docker.progress import PullProgress


def step(layer: str, status: str, current: int = 0, total: int = 0) -> dict[str, Any]:
    return {"id": layer, "status": status, "progressDetail": {"current": current, "total": total}}


BEGUN = [
    {"status": "Pulling from team/tool", "id": "1"},
    step("a", "Already exists"),
    step("b", "Pulling fs layer"),
    step("c", "Waiting"),
]
LOADING = [
    *BEGUN,
    step("b", "Downloading", 412_000_000, 900_000_000),
    step("c", "Downloading", 0, 80_000_000),
]
LOADED = [
    *LOADING,
    step("b", "Verifying Checksum"),
    step("b", "Download complete"),
    step("c", "Download complete"),
]
CASES = {
    "nothing said": ([], "pulling team/tool:1"),
    "known layers": (BEGUN, "pulling team/tool:1: 1 of 3 layers"),
    "loading": (LOADING, "pulling team/tool:1: 412 of 980 MB, 1 of 3 layers"),
    "a small one": (
        [step("a", "Downloading", 1_250_000, 4_000_000)],
        "pulling team/tool:1: 1.2 of 4.0 MB, 0 of 1 layers",
    ),
    "unpacking": ([*LOADED, step("b", "Extracting", 5, 900)], "unpacking team/tool:1: 1 of 3 layers"),
    "done": (
        [*LOADED, step("b", "Pull complete"), step("c", "Pull complete")],
        "pulling team/tool:1: 3 of 3 layers",
    ),
    "a size that nobody knows": (
        [step("a", "Downloading", 4096, -1)],
        "pulling team/tool:1: 0 of 1 layers",
    ),
    "words of a later engine": ([{"status": "Sharing", "id": "a"}, {"aux": {}}], "pulling team/tool:1"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_told(name: str) -> None:
    steps, text = CASES[name]
    progress = PullProgress("team/tool:1")
    for one in steps:
        progress.feed(one)
    assert progress.text() == text
