"""Claude Code and Codex with a model that llama.cpp serves.

The model is tiny and returns random words, so any answer counts. Its context holds the prompts of
both programs.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import gguf
import pytest

from moorage.common.model.spec import EndpointSpec
from tests.e2e.conftest import tiny_model as tiny_model
from tests.e2e.harness import Platform, until

from .programs import moorage, says_words

pytestmark = [pytest.mark.coding, pytest.mark.timeout(500)]
ANSWER_S = 300.0
CONTEXT = 65536


@pytest.fixture
def long_model(tiny_model: Path, reachable_dir: Path) -> Path:
    """The demo's model; llama.cpp accepts no longer context than its file states, which is 2048."""
    path = reachable_dir / "long.gguf"
    shutil.copy(tiny_model, path)
    field = gguf.GGUFReader(path, "r+").get_field("llama.context_length")
    field.parts[field.data[0]][0] = CONTEXT
    return path


async def serve(platform: Platform, model: Path) -> None:
    await platform.wait_until_ready()
    spec = EndpointSpec(
        name="words", engine="llamacpp", model=str(model), args=["--ctx-size", str(CONTEXT), "--jinja"],
        resources={"cpu": "0.2", "mem": "512MiB"},
    )  # fmt: skip
    async with platform.client() as client:
        if spec.name not in [view.name for view in await client.endpoints.list()]:
            await client.endpoints.create(spec)

        async def is_ready() -> bool:
            return (await client.endpoints.get("words")).ready == 1

        await until("the model is ready", is_ready)


async def test_claude_code_shows_what_llama_cpp_says(
    one_node: Platform, long_model: Path, tmp_path: Path
) -> None:
    await serve(one_node, long_model)
    command = ("claude", "words", "--", "-p", "ping", "--output-format", "json")
    done = await asyncio.to_thread(moorage, one_node, tmp_path, *command, timeout=ANSWER_S)
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert says_words(answer["result"]), done.stdout
    assert answer["usage"]["output_tokens"] > 0


async def test_codex_shows_what_llama_cpp_says(
    one_node: Platform, long_model: Path, tmp_path: Path
) -> None:
    await serve(one_node, long_model)
    command = ("codex", "words", "--", "exec", "--skip-git-repo-check", "ping")
    done = await asyncio.to_thread(moorage, one_node, tmp_path, *command, timeout=ANSWER_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert says_words(done.stdout), done.stdout + done.stderr
