"""Models named by their id on a hub, which is on loopback: the agent downloads them, and a real
engine serves them, even after everything was killed in the middle of the download."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.local_hub import LocalHub

from .harness import Platform, example, until

MODEL = "org/tiny-GGUF:F16"
FILE = "tiny-F16.gguf"
MIB = 1024 * 1024


@pytest.fixture
def hub(tiny_model: Path) -> Iterator[LocalHub]:
    # Large enough for a download to be resumed; the engine ignores the bytes after the tensors.
    data = tiny_model.read_bytes() + b"\0" * (24 * MIB)
    with LocalHub({"org/tiny-GGUF": {FILE: data, "README.md": b"#"}}) as running:
        yield running


def downloads(hub: LocalHub) -> list[str]:
    return [
        asked for method, path, asked in hub.requests if method == "GET" and path.endswith(FILE)
    ]


async def test_gguf_is_downloaded_served_and_kept(hub: LocalHub, platform: Platform) -> None:
    cache = platform.home / "hub"
    platform.env |= {"HF_HOME": str(cache), "HF_ENDPOINT": hub.url}
    hub.held[FILE] = 20 * MIB
    platform.start("up")
    await platform.wait_until_ready()
    small = ("--resources", "cpu=0.1", "--resources", "mem=64MiB", "--arg=--ctx-size=512")
    created = await asyncio.to_thread(platform.run, "serve", MODEL, *small, "--no-wait")
    assert created.returncode == 0, created.stderr

    async def shows_progress() -> bool:
        shown = (await asyncio.to_thread(platform.run, "ps")).stdout
        return "downloading: 7" in shown

    await until("the download is shown", shows_progress)
    platform.kill("up")
    hub.held.clear()
    platform.start("up")
    await platform.wait_until_ready()

    async def is_ready() -> bool:
        async with platform.client() as client:
            return (await client.endpoints.get("tiny")).ready == 1

    await until("the model is served", is_ready)
    first, second = downloads(hub)
    assert (first, second.startswith("bytes=")) == ("", True)
    assert int(second.removeprefix("bytes=").rstrip("-")) >= 19 * MIB
    async with openai.AsyncOpenAI(base_url=platform.openai_url, api_key=platform.key) as client:
        answer = await client.completions.create(model="tiny", prompt="Hi", max_tokens=3)

    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3
    stopped = await asyncio.to_thread(platform.run, "stop", "tiny")
    assert stopped.returncode == 0, stopped.stderr

    hub.requests.clear()
    again = await asyncio.to_thread(platform.run, "serve", MODEL, "--name", "again", *small)
    assert again.returncode == 0, again.stderr
    assert hub.requests == []

    shown = await asyncio.to_thread(example, platform, "models.py", MODEL)
    assert shown == "ready: 1 of 1\n"

    missing = await asyncio.to_thread(platform.run, "serve", "org/none-GGUF", *small)
    assert missing.returncode == 1
    assert "has no org/none-GGUF" in missing.stderr
    assert "model-missing" in missing.stderr
