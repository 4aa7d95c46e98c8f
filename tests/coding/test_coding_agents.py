"""Claude Code and Codex themselves, from npm, with a served model: an answer, its tokens, and the
key's revocation."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from moorage.common.model.spec import EndpointSpec, Probe
from tests.e2e.harness import EXAMPLES, Platform, until

from .programs import moorage, run

pytestmark = pytest.mark.coding
MODEL = EndpointSpec(
    name="coder",
    engine="custom",
    probe=Probe(path="/health"),
    resources={"cpu": "0.2", "mem": "256MiB"},
    command=[sys.executable, str(Path(__file__).with_name("scripted_engine.py")), "{port}"],
)


async def served(platform: Platform) -> None:
    await platform.wait_until_ready()
    async with platform.client() as client:
        if "coder" not in [view.name for view in await client.endpoints.list()]:
            await client.endpoints.create(MODEL)

        async def is_ready() -> bool:
            return bool((await client.endpoints.get("coder")).ready)

        await until("the model is ready", is_ready)


def asked(output: str) -> dict[str, Any]:
    """The first request that the engine received."""
    found: dict[str, Any] = json.JSONDecoder().raw_decode(output[output.index("pong ") + 5 :])[0]
    return found


async def keys(platform: Platform) -> list[str]:
    async with platform.client() as client:
        return [key.name for key in await client.keys.list()]


@pytest.mark.timeout(240)
async def test_claude_code_asks_the_model(one_node: Platform, tmp_path: Path) -> None:
    await served(one_node)
    before = await keys(one_node)
    command = ("claude", "coder", "--", "-p", "ping", "--output-format", "json")
    done = await asyncio.to_thread(moorage, one_node, tmp_path, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    found = asked(answer["result"])
    assert found["model"] == "coder"
    assert found["tools"] > 5
    assert not found["attribution"], "it breaks prefix caches"
    assert answer["usage"]["output_tokens"] == 3
    assert await keys(one_node) == before


@pytest.mark.timeout(240)
async def test_codex_asks_the_model(one_node: Platform, tmp_path: Path) -> None:
    await served(one_node)
    before = await keys(one_node)
    command = ("codex", "coder", "--", "exec", "--skip-git-repo-check", "ping")
    done = await asyncio.to_thread(moorage, one_node, tmp_path, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    found = asked(done.stdout)
    assert found["model"] == "coder"
    assert found["tools"] > 2
    assert await keys(one_node) == before


@pytest.mark.timeout(240)
async def test_printed_key_is_for_this_model_only(one_node: Platform, tmp_path: Path) -> None:
    await served(one_node)
    printed = await asyncio.to_thread(
        moorage, one_node, tmp_path, "claude", "coder", "--print-env", "-o", "json"
    )
    assert printed.returncode == 0, printed.stderr
    shown = json.loads(printed.stdout)
    secret = shown["environment"]["ANTHROPIC_AUTH_TOKEN"]
    assert secret != one_node.key
    env = {"MOORAGE_API_KEY": secret}
    one_node.env |= env

    try:
        listing = await asyncio.to_thread(one_node.run, "ps")
    finally:
        del one_node.env["MOORAGE_API_KEY"]

    assert listing.returncode == 4, "it may use models, and nothing else"
    async with one_node.client() as client:
        await client.keys.revoke(shown["key"])


@pytest.mark.timeout(300)
async def test_example(one_node: Platform, tmp_path: Path) -> None:
    await served(one_node)
    before = await keys(one_node)
    done = await asyncio.to_thread(
        run, one_node, tmp_path, "sh", str(EXAMPLES / "coding_agents.sh"), "coder"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count('pong {"model": "coder"') == 2, done.stdout
    assert "ANTHROPIC_AUTH_TOKEN" in done.stdout
    [key] = set(await keys(one_node)) - set(before)
    async with one_node.client() as client:
        await client.keys.revoke(key)
