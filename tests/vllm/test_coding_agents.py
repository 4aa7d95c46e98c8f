"""Claude Code and Codex themselves, from npm, with a model that a real vLLM serves.

The model is tiny and returns random words, so any answer counts. Its context holds the prompts of
both programs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from moorage.common.model.spec import EndpointSpec
from moorage.demo.model import write_tiny_llama_dir
from tests.coding.programs import moorage, says_words
from tests.e2e.harness import Platform, until

from .test_vllm import ENV
from .tiny_weights import write_readable_weights

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="module")]
NAME = "coder"
CONTEXT = 131072
BLOCK = 32
START_S = 400.0
ANSWER_S = 400.0
OPTIONS = [
    *(
        "--dtype",
        "float32",
        "--max-model-len",
        str(CONTEXT),
        "--enforce-eager",
        "--max-num-seqs",
        "4",
    ),
    *("--num-gpu-blocks-override", str(CONTEXT // BLOCK + 1), "--block-size", str(BLOCK)),
    *("--enable-auto-tool-choice", "--tool-call-parser", "pythonic"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def endpoint(platform: Platform) -> AsyncIterator[None]:
    model = platform.home / "coder-model"
    write_tiny_llama_dir(model)
    write_readable_weights(model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": CONTEXT}))
    await platform.wait_until_ready()
    spec = EndpointSpec(
        name=NAME, engine="vllm", model=str(model), args=OPTIONS, env=ENV,
        resources={"cpu": "0.5", "mem": "2GiB"}, start_timeout_s=START_S, stop_grace_s=8,
    )  # fmt: skip
    async with platform.client() as client:
        await client.endpoints.create(spec)

        async def is_ready() -> bool:
            return (await client.endpoints.get(NAME)).ready == 1

        await until("the model is ready", is_ready, START_S)
        yield
        await client.endpoints.delete(NAME)


async def test_claude_code_shows_what_the_model_says(platform: Platform, tmp_path: Path) -> None:
    command = ("claude", NAME, "--", "-p", "ping", "--output-format", "json")
    done = await asyncio.to_thread(moorage, platform, tmp_path, *command, timeout=ANSWER_S)
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert says_words(answer["result"]), done.stdout
    assert answer["usage"]["output_tokens"] > 0


async def test_codex_shows_what_the_model_says(platform: Platform, tmp_path: Path) -> None:
    command = ("codex", NAME, "--", "exec", "--skip-git-repo-check", "ping")
    done = await asyncio.to_thread(moorage, platform, tmp_path, *command, timeout=ANSWER_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert says_words(done.stdout), done.stdout + done.stderr
