"""llama.cpp's own server tests, at llama.cpp directly and through each data plane.

The replica is one of the engine ``custom`` whose endpoint lists all its POST paths
(``routing.apis``). Only what passes directly and fails through the proxy counts, unless
``allowed.toml`` gives a reason.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from moorage.agent.engines.llamacpp import SERVER
from moorage.common.link.messages import RouteTable
from moorage.demo.model import write_tiny_gguf
from tests.conformance.planes.harness import PLANES
from tests.suites.engines import started
from tests.suites.judging import judge
from tests.suites.proxied import proxied, route_to
from tests.suites.running import Address, Suite
from tests.suites.sources import llamacpp

pytestmark = pytest.mark.suites

# The key that their tests about keys use.
KEY = "sk-this-is-the-secret-key"
MODEL = "tinyllama-2"
# The preset of most of their tests: a tiny model with two slots.
OPTIONS = (
    *("--ctx-size", "512", "--batch-size", "32", "--parallel", "2", "--n-predict", "64"),
    *("--seed", "42", "--temp", "0.8", "--threads", "1", "--jinja"),
)
APIS = (
    "/apply-template",
    "/chat/completions",
    "/chat/completions/input_tokens",
    "/completion",
    "/completions",
    "/detokenize",
    "/embedding",
    "/embeddings",
    "/infill",
    "/responses",
    "/tokenize",
    "/v1/chat/completions",
    "/v1/chat/completions/input_tokens",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/responses",
    "/v1/responses/input_tokens",
)
# The names that their requests give the model; llama.cpp ignores them.
ALIASES = dict.fromkeys(
    (
        "ggml-org/tinygemma3-GGUF:Q8_0",
        "gpt-3.5-turbo",
        "gpt-3.5-turbo-instruct",
        "llama-test-model",
        "test",
        "text-embedding-3-small",
    ),
    MODEL,
)
SUITE = Suite(
    "llamacpp",
    path=llamacpp().path / "tests",
    python=Path(sys.executable),
    plugin="external_llamacpp",
    paths=("unit",),
    options=("-m", "not slow"),
    environment={},
)


@asynccontextmanager
async def engine(folder: Path) -> AsyncIterator[int]:
    """The port of llama.cpp with a tiny model."""
    model = folder / "tiny.gguf"
    write_tiny_gguf(model)
    command = (sys.executable, *SERVER, *OPTIONS, "--model", str(model), "--alias", MODEL)
    async with started(command, {"MOORAGE_SECRET": KEY}, folder / "engine.log") as port:
        yield port


def routes(port: int) -> RouteTable:
    return route_to(port, [MODEL], key=KEY, engine="custom", apis=APIS)


@pytest.mark.timeout(500)
async def test_same_as_directly(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(engine(tmp_path))
        found = [Address("directly", f"http://127.0.0.1:{port}", KEY)]
        for plane in ("asyncio", "simple"):
            proxy = proxied(PLANES[plane], routes(port), default_model=MODEL, model_aliases=ALIASES)
            found.append(Address(plane, await stack.enter_async_context(proxy), KEY))

        await judge(SUITE, found)
