"""vLLM's own tests of its servers for OpenAI's and Anthropic's APIs, at vLLM directly and through a
data plane.

The model is tiny, with random weights that end its answers, and has the names of all their models.
Only what passes directly and fails through the proxy counts, unless ``allowed.toml`` gives a reason.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from moorage.demo.model import write_tiny_llama_dir
from tests.conformance.planes.harness import PLANES
from tests.suites.engines import started
from tests.suites.judging import judge
from tests.suites.proxied import proxied, route_to
from tests.suites.running import Address, Suite
from tests.suites.sources import ROOT, vllm
from tests.vllm.tiny_weights import write_readable_weights

pytestmark = pytest.mark.suites

BIN = ROOT / ".venv-vllm" / "bin"
TESTS = vllm().path / "tests" / "entrypoints"
FOLDERS = ("anthropic", "openai", "serve")
_NAME = re.compile(r'^MODEL[A-Z_]*(?:: str)? = "([^"]+)"', re.MULTILINE)
# Names that their servers get from the command line.
MORE_NAMES = ("claude-3-7-sonnet-latest", "zephyr-lora")
# Tests for what the tiny model or this machine lacks, or without a server.
LEFT_OUT = frozenset(
    {
        "test_harmony.py",
        "test_lmeval.py",
        "test_lora_adapters.py",
        "test_mcp_tools.py",
        "test_openai_schema.py",
        "test_parsable_context.py",
        "test_serving_chat.py",
        "test_tensorizer_entrypoint.py",
        "test_uds.py",
    }
)
CONTEXT = 8192
OPTIONS = (
    *("--dtype", "float32", "--max-model-len", str(CONTEXT), "--enforce-eager"),
    *("--num-gpu-blocks-override", "512", "--block-size", "32", "--max-num-seqs", "16"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--seed", "7"),
)
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "0",
}


def files() -> Iterator[Path]:
    """The files whose tests start a server: others test vLLM's code without one."""
    for folder in FOLDERS:
        for path in sorted((TESTS / folder).rglob("test_*.py")):
            text = path.read_text(encoding="utf-8")
            if path.name in LEFT_OUT:
                continue
            if "RemoteOpenAIServer" in text or "RemoteVLLMServer" in text:
                yield path


def names() -> list[str]:
    found = [name for path in TESTS.rglob("*.py") for name in _NAME.findall(path.read_text())]
    return sorted({*found, *MORE_NAMES})


def write_model(folder: Path) -> None:
    """A tiny model whose answers end by themselves."""
    write_tiny_llama_dir(folder)
    config = folder / "config.json"
    written = json.loads(config.read_text()) | {"max_position_embeddings": CONTEXT}
    config.write_text(json.dumps(written))
    write_readable_weights(folder)


def suite(model: Path) -> Suite:
    site = next((ROOT / ".venv-suites" / "lib").glob("python3*")) / "site-packages"
    return Suite(
        "vllm",
        path=vllm().path,
        python=BIN / "python",
        plugin="external_vllm",
        paths=[str(path.relative_to(vllm().path)) for path in files()],
        options=(
            # Files that need other packages, or a network, fail when they are collected.
            "--continue-on-collection-errors",
            *("-c", os.devnull, "--rootdir", str(vllm().path)),
        ),
        environment={**ENVIRONMENT, "SUITE_MODEL": str(model)},
        packages=(site,),
    )


@pytest.mark.timeout(1200)
async def test_same_as_directly(tmp_path: Path) -> None:
    model = tmp_path / "model"
    write_model(model)
    command = (str(BIN / "vllm"), "serve", str(model), "--host", "127.0.0.1", *OPTIONS)
    command += ("--served-model-name", *names())
    async with AsyncExitStack() as stack:
        log = tmp_path / "engine.log"
        port = await stack.enter_async_context(started(command, ENVIRONMENT, log))
        routes = route_to(port, names(), key="", engine="vllm")
        proxy = proxied(PLANES["asyncio"], routes, auth="none", default_model=names()[0])
        url = await stack.enter_async_context(proxy)
        direct = Address("directly", f"http://127.0.0.1:{port}", "")
        await judge(suite(model), [direct, Address("asyncio", url, "")])
