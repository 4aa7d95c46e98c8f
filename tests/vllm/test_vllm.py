"""vLLM on the CPU behind every component, used through OpenAI's client. Run by ``make
test-vllm``."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import openai
import pytest

from moorage.demo.model import write_tiny_llama_dir
from tests.e2e.harness import Platform, kernels_below, until

pytestmark = pytest.mark.vllm
NAME = "tiny-llama"
# For a small machine: a small KV cache, no compilation, and random weights.
ARGS = [
    *("--load-format", "dummy", "--dtype", "float32", "--max-model-len", "512", "--enforce-eager"),
    *("--num-gpu-blocks-override", "64", "--block-size", "32", "--max-num-seqs", "4"),
]
ENV = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@pytest.mark.timeout(600)
def test_model_from_serve_to_stop(platform: Platform, tmp_path: Path) -> None:
    model = tmp_path / "model"
    write_tiny_llama_dir(model)
    asyncio.run(
        until("it is up", lambda: asyncio.to_thread((platform.home / "connection.json").exists))
    )
    arguments = [
        "serve",
        str(model),
        "--engine",
        "vllm",
        "--name",
        NAME,
        "--resources",
        "mem=2GiB",
        "--timeout",
        "500s",
    ]
    arguments += [item for value in ARGS for item in ("--arg", value)]
    arguments += [item for name, value in ENV.items() for item in ("--env", f"{name}={value}")]
    served = platform.run(*arguments, timeout=550)
    assert served.returncode == 0, served.stderr
    engines = kernels_below(platform.home)
    assert len(set(engines.values())) == 1
    print(served.stderr)

    client = openai.OpenAI(base_url=platform.openai_url, api_key=platform.key)
    assert [m.id for m in client.models.list()] == [NAME]
    question: list[dict[str, str]] = [{"role": "user", "content": "Tell me about the sea."}]
    answer = client.chat.completions.create(model=NAME, messages=question, max_tokens=12)  # type: ignore[arg-type]
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12

    pieces = client.chat.completions.create(
        model=NAME, messages=question, max_tokens=12, stream=True, stream_options={"include_usage": True}  # type: ignore[arg-type]
    )  # fmt: skip
    seen = list(pieces)
    assert sum(bool(c.choices) for c in seen) >= 5
    assert seen[-1].usage is not None
    assert seen[-1].usage.completion_tokens == 12

    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="no-such", messages=question)  # type: ignore[arg-type]

    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=platform.openai_url, api_key="wrong").models.list()
    with pytest.raises(openai.BadRequestError):  # vLLM's own error passes through unchanged
        client.chat.completions.create(model=NAME, messages=question, max_tokens=100_000)  # type: ignore[arg-type]

    asyncio.run(_metrics(platform, client))
    stopped = platform.run("stop", NAME)
    assert stopped.returncode == 0, stopped.stderr
    assert kernels_below(platform.home) == {}, "no process of the engine is left"


async def _metrics(platform: Platform, client: openai.OpenAI) -> None:
    """The engine's metrics count the requests, and its port requires the kernel's key."""
    async with platform.client() as management:
        view = await management.endpoints.get(NAME)
        session = await management.sessions.get(view.sessions[0].session_id)

    kernel = session.kernels[-1]
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"http://{kernel.host}:{kernel.port}/metrics") as answer,
    ):
        text = await answer.text()

    done = [line for line in text.splitlines() if line.startswith("vllm:request_success_total{")]
    assert sum(float(line.rsplit(" ", 1)[1]) for line in done) >= 2
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"http://{kernel.host}:{kernel.port}/v1/models") as answer,
    ):
        assert answer.status == 401, "the engine's port requires the kernel's key"
