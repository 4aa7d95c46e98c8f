"""Downloads from a hub on loopback with huggingface-hub: the real program, killed and continued."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.local_hub import LocalHub, tiny_model

from moorage.agent import models
from moorage.agent.models.fetching import describe
from moorage.agent.runtimes.base import CreateFailed
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.status import SessionType

MIB = 1024 * 1024
WEIGHTS = random.Random(1).randbytes(20 * MIB)
QUANTIZED = {"tiny-Q4_K_M.gguf": b"GGUF" + b"4" * 5000, "tiny-Q8_0.gguf": b"GGUF" + b"8" * 9000}
SHARDS = {f"Q6_K/big-Q6_K-0000{n}-of-00003.gguf": b"GGUF" + bytes([n]) * 5000 for n in (1, 2, 3)}


@pytest.fixture(scope="module")
def hub() -> Iterator[LocalHub]:
    files = tiny_model(WEIGHTS) | {"pytorch_model.bin": b"x" * 6000, "onnx/model.onnx": b"x" * 6000}
    gguf = QUANTIZED | SHARDS | {"mmproj-Q4_K_M.gguf": b"GGUF" * 2000, "README.md": b"#"}
    repositories = {"org/tiny": files, "org/gated": tiny_model(), "org/tiny-GGUF": gguf}
    with LocalHub(repositories, tokens={"org/gated": "hf_1"}) as running:
        yield running


def spec(model: str, engine: str = "vllm", **fields: Any) -> KernelSpec:
    return KernelSpec(
        KernelId("k1"),
        SessionId("s1"),
        session_name="s",
        session_type=SessionType.INFERENCE,
        runtime="process",
        engine=engine,
        served_name="m",
        model=model,
        **fields,
    )


@pytest.fixture
def env(hub: LocalHub, tmp_path: Path) -> dict[str, str]:
    hub.requests.clear()
    return {"PATH": os.environ["PATH"], "HF_HOME": str(tmp_path), "HF_ENDPOINT": hub.url}


def ranges(hub: LocalHub) -> list[str]:
    """The ranges of the weight downloads."""
    return [
        asked for method, path, asked in hub.requests if method == "GET" and "safetensors" in path
    ]


async def test_model_is_fetched_once_with_progress(hub: LocalHub, env: dict[str, str]) -> None:
    seen: list[str] = []
    folder = Path(await models.fetch(spec("org/tiny"), env, seen.append))
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert (seen[0], seen[-1]) == ("downloading", "downloading: 100% of 20MiB")
    hub.requests.clear()
    again: list[str] = []
    assert await models.fetch(spec("org/tiny"), env, again.append) == str(folder)
    assert (hub.requests, again) == ([], [])


async def test_killed_download_is_continued(
    hub: LocalHub, env: dict[str, str], tmp_path: Path
) -> None:
    hub.held["model.safetensors"] = 12 * MIB
    fetching = asyncio.create_task(models.fetch(spec("org/tiny"), env, lambda _: None))
    partial = tmp_path / "hub" / "models--org--tiny" / "blobs"
    async with asyncio.timeout(30):
        while not any(
            path.stat().st_size >= 10 * MIB for path in partial.glob("*.moorage-partial")
        ):
            await asyncio.sleep(0.05)

    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching

    hub.held.clear()
    [left] = partial.glob("*.moorage-partial")
    have = left.stat().st_size
    folder = Path(await models.fetch(spec("org/tiny"), env, lambda _: None))
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert ranges(hub) == ["", f"bytes={have}-"]
    assert have >= 10 * MIB
    assert list(partial.glob("*partial")) == []


async def test_connection_that_is_cut_is_continued(hub: LocalHub, env: dict[str, str]) -> None:
    hub.cut["model.safetensors"] = 9 * MIB
    folder = Path(await models.fetch(spec("org/tiny"), env, lambda _: None))
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert [asked.rstrip("-").removeprefix("bytes=") > "0" for asked in ranges(hub)] == [
        False,
        True,
    ]


async def test_disk_that_fills_up_is_named_and_the_download_continued(
    hub: LocalHub, env: dict[str, str], tmp_path: Path
) -> None:
    """A limit on file sizes simulates a full disk: the file system refuses a write in the
    middle."""
    most = 9 * MIB + 1000
    limited = ["prlimit", f"--fsize={most}"]
    with subprocess.Popen(
        [*limited, sys.executable, "-m", "moorage.agent.models.download", "org/tiny", "main"],
        env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as program:  # fmt: skip
        told = [json.loads(line) for line in program.stdout or ()]

    assert (program.returncode, told[-1]["reason"]) == (1, "disk-full"), told
    assert "moorage-partial: File too large" in told[-1]["error"]
    folder = Path(await models.fetch(spec("org/tiny"), env, lambda _: None))
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert ranges(hub) == ["", f"bytes={most}-"]
    assert list(tmp_path.rglob("*partial")) == []


async def test_damaged_partial_file_is_not_used(
    hub: LocalHub, env: dict[str, str], tmp_path: Path
) -> None:
    hub.held["model.safetensors"] = 9 * MIB
    blobs = tmp_path / "hub" / "models--org--tiny" / "blobs"
    fetching = asyncio.create_task(models.fetch(spec("org/tiny"), env, lambda _: None))
    async with asyncio.timeout(30):
        while not any(path.stat().st_size >= 8 * MIB for path in blobs.glob("*.moorage-partial")):
            await asyncio.sleep(0.05)

    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching

    hub.held.clear()
    [partial] = blobs.glob("*.moorage-partial")
    with partial.open("r+b") as file:
        file.write(b"damaged")
    with pytest.raises(CreateFailed, match="does not match the hub's checksum"):
        await models.fetch(spec("org/tiny"), env, lambda _: None)

    assert not partial.exists()
    folder = Path(await models.fetch(spec("org/tiny"), env, lambda _: None))
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS


async def test_two_kernels_share_a_download(hub: LocalHub, env: dict[str, str]) -> None:
    found = await asyncio.gather(
        *(models.fetch(spec("org/tiny"), env, lambda _: None) for _ in range(2)),
        return_exceptions=True,
    )
    assert len(set(map(str, found))) == 1, found
    assert ranges(hub) == [""]


async def test_token_of_the_kernel_is_sent(env: dict[str, str]) -> None:
    with pytest.raises(CreateFailed, match="accept its terms, and pass HF_TOKEN") as refused:
        await models.fetch(spec("org/gated"), env, lambda _: None)
    assert refused.value.reason is Reason.MODEL_MISSING
    assert "hf_1" not in str(refused.value)
    assert await models.fetch(spec("org/gated", env={"HF_TOKEN": "hf_1"}), env, lambda _: None)


async def test_cache_serves_without_the_hub(env: dict[str, str], tmp_path: Path) -> None:
    folder = await models.fetch(spec("org/tiny"), env, lambda _: None)
    marker = next((tmp_path / "hub" / "models--org--tiny" / ".moorage").iterdir())
    for offline in ({"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}):
        assert await models.fetch(spec("org/tiny"), env | offline, lambda _: None) == folder
    marker.unlink()  # as if another program had filled the cache
    for offline in ({"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}):
        assert await models.fetch(spec("org/tiny"), env | offline, lambda _: None) == folder


@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        ("org/none", {}, "has no org/none"),
        ("org/none", {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set, and the cache"),
        ("org/none", {"HF_ENDPOINT": "http://127.0.0.1:9"}, "http://127.0.0.1:9 does not answer"),
    ],
)
async def test_refusals(
    env: dict[str, str], model: str, changes: dict[str, str], message: str
) -> None:
    with pytest.raises(CreateFailed, match=message):
        await models.fetch(spec(model), env | changes, lambda _: None)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", "tiny-Q4_K_M.gguf"),
        (":q8_0", "tiny-Q8_0.gguf"),
        (":tiny-Q8_0.gguf", "tiny-Q8_0.gguf"),
        (":Q6_K", "big-Q6_K-00001-of-00003.gguf"),
    ],
)
async def test_gguf_of_a_quantisation(env: dict[str, str], selector: str, expected: str) -> None:
    path = Path(
        await models.fetch(spec(f"org/tiny-GGUF{selector}", "llamacpp"), env, lambda _: None)
    )
    assert path.name == expected
    assert path.read_bytes()[:4] == b"GGUF"
    assert len(list(path.parent.glob("*.gguf"))) == (3 if "Q6_K" in selector else 1)


async def test_gguf_that_is_missing_names_those_that_are_there(env: dict[str, str]) -> None:
    with pytest.raises(CreateFailed, match=r"no GGUF file for 'Q2_K'; it has .*tiny-Q8_0\.gguf"):
        await models.fetch(spec("org/tiny-GGUF:Q2_K", "llamacpp"), env, lambda _: None)


def test_progress() -> None:
    assert describe(0, 0) == "downloading: 0% of 0B"
    assert describe(512 * MIB, 1024 * MIB) == "downloading: 50% of 1GiB"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"model": "org/tiny"}, True),
        ({"model": "/models/tiny"}, False),
        ({"model": "org/tiny", "env": {"VLLM_USE_MODELSCOPE": "true"}}, False),
        ({"model": "org/tiny-GGUF", "engine": "llamacpp"}, True),
        ({"model": "org/tiny:Q8_0", "engine": "llamacpp"}, True),
        ({"model": "/models/tiny.gguf", "engine": "llamacpp"}, False),
        ({"model": "org/tiny", "engine": "custom"}, False),
    ],
)
def test_what_the_agent_fetches(fields: dict[str, Any], expected: bool) -> None:
    assert models.is_fetched(spec(**fields)) is expected
