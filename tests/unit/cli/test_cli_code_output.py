"""Output of ``moorage exec --code``: text without colours in pipes, and images in files."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from fake_manager import FakeManager
from invoke import Run

from moorage.common.model.code_runs import RunStatus
from moorage.common.views.executions import ExecutionView

PNG = b"\x89PNG\r\n\x1a\n picture"
FIGURE = {"text/plain": "<Figure>", "image/png": base64.b64encode(PNG).decode()}
SVG = {"image/svg+xml": "<svg/>"}


def answer(manager: FakeManager, *items: dict[str, Any]) -> None:
    """Let the code that runs next have this output."""
    console = [{"seq": n} | item for n, item in enumerate(items)]
    ended = ExecutionView(
        run_id="r1",
        kernel="python3",
        status=RunStatus.FINISHED,
        console=console,
        next=len(console),
        exit_code=0,
    )
    manager.can("POST", "/v1/sessions/dev/executions", 200, ended)


def displayed(data: dict[str, str]) -> dict[str, Any]:
    return {"type": "display", "data": data}


def test_images_are_saved_beside_earlier_ones(
    manager: FakeManager, moorage: Run, tmp_path: Path
) -> None:
    plots = tmp_path / "new" / "plots"
    command = ("exec", "dev", "--code", "x", "--save-images", str(plots))
    answer(manager, displayed(FIGURE), displayed(SVG))
    first = moorage(*command)
    assert (first.exit_code, first.stdout) == (0, "<Figure>\n")
    assert f"saved {plots}/image-1.png (image/png, {len(PNG)} bytes)" in first.stderr
    assert moorage(*command).exit_code == 0
    assert {path.name: path.read_bytes() for path in plots.iterdir()} == {
        "image-1.png": PNG,
        "image-1.svg": b"<svg/>",
        "image-2.png": PNG,
        "image-2.svg": b"<svg/>",
    }


def test_images_are_saved_with_json_output(
    manager: FakeManager, moorage: Run, tmp_path: Path
) -> None:
    answer(manager, displayed(FIGURE))
    result = moorage("exec", "dev", "-o", "json", "--code", "x", "--save-images", str(tmp_path))
    assert result.stdout.startswith("{")
    assert (tmp_path / "image-1.png").read_bytes() == PNG


def test_an_image_that_is_not_saved_is_reported(manager: FakeManager, moorage: Run) -> None:
    answer(manager, displayed(FIGURE))
    result = moorage("exec", "dev", "--code", "x")
    assert result.stdout == "<Figure>\n"
    assert "an image (image/png, 16 bytes) is not shown; --save-images DIR saves it" in (
        result.stderr
    )


def test_no_code_runs_if_the_directory_cannot_be_created(
    manager: FakeManager, moorage: Run, tmp_path: Path
) -> None:
    answer(manager, displayed(FIGURE))
    (tmp_path / "file").write_text("")
    wrong = f"{tmp_path}/file/plots"
    result = moorage("exec", "dev", "--code", "x", "--save-images", wrong)
    assert result.exit_code == 2
    assert f"--save-images: {wrong} cannot be written" in result.stderr
    assert not [request for request in manager.requests if request.endswith("/executions")]


@pytest.mark.parametrize("kind", ["result", "display"])
def test_displayed_text_has_no_colours_in_pipes(
    manager: FakeManager, moorage: Run, kind: str
) -> None:
    answer(
        manager,
        {"type": kind, "data": {"text/plain": "\x1b[1;31mred\x1b[0m"}},
        {"type": "stream", "name": "stdout", "text": "\x1b[32mprinted\x1b[0m\n"},
    )
    assert moorage("exec", "dev", "--code", "x").stdout == "red\n\x1b[32mprinted\x1b[0m\n"
