"""Engine progress: how far a start has come, according to the end of the log."""

from __future__ import annotations

import asyncio

import pytest

from moorage.agent.engines import ENGINES
from moorage.agent.engines.base import ReadinessProbe
from moorage.agent.kernel.readiness import ReadinessCheck
from moorage.common.aio.clock import SystemClock

SHARDS = "Loading safetensors checkpoint shards"
VLLM = [
    ("", ""),
    ("INFO 05-04 vLLM API server version 0.11.0", ""),
    ("INFO gpu_model_runner.py:2602] Starting to load model Qwen/Qwen3-0.6B...", "loading weights"),
    ("model-00001-of-00004.safetensors:  43%|####3     | 2.1G/4.9G", "downloading: 43% of a file"),
    ("Fetching 12 files:  25%|##5       | 3/12", "downloading: 25% of the files"),
    (f"{SHARDS}:   0% Completed | 0/4\r{SHARDS}:  50% Completed | 2/4", "loading weights: 50%"),
    (
        f"{SHARDS}: 100% Completed | 4/4\n\nINFO Loading weights took 0.60 seconds",
        "loading weights: 100%",
    ),
    ("INFO Using cache directory: /c for vLLM's torch.compile", "warming up: compiling"),
    (
        "INFO Dynamo bytecode transform time: 3.2 s\n"
        "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  60%|######    | 40/67",
        "warming up: capturing CUDA graphs, 60%",
    ),
    (
        "INFO Graph capturing finished in 20 secs\nINFO init engine (profile) took 23 seconds",
        "warming up",
    ),
    ("INFO:     Application startup complete.", "warming up"),
    ("the user's <secret> 99%| is not shown", ""),
]
LLAMACPP = [
    ("0.00.015.090 I srv    load_model: loading model '/tmp/mt.gguf'", "loading weights"),
    (
        "load_tensors: loading model tensors\n.................................",
        "loading weights: 33%",
    ),
    ("0.00.075 I srv    load_model: initializing, n_slots = 4", "warming up"),
    ("something else", ""),
]


@pytest.mark.parametrize(
    ("engine", "log", "progress"),
    [
        *(("vllm", *case) for case in VLLM),
        *(("llamacpp", *case) for case in LLAMACPP),
        ("custom", "50%", ""),
    ],
)
def test_newest_stage_counts(engine: str, log: str, progress: str) -> None:
    assert ENGINES[engine].progress(log) == progress


async def test_stage_of_the_log_is_told_while_nothing_listens() -> None:
    told: list[str] = []
    seen = asyncio.Event()

    async def read_log() -> str:
        return f"{SHARDS}:  50% Completed | 2/4"

    def on_progress(text: str) -> None:
        told.append(text)
        if "50%" in text:
            seen.set()

    check = ReadinessCheck(
        ENGINES["vllm"], (ReadinessProbe("GET", "/"),), "http://127.0.0.1:9", read_log
    )
    waiting = asyncio.ensure_future(check.wait(0.1, SystemClock(), on_progress))
    try:
        async with asyncio.timeout(30):
            await seen.wait()
    finally:
        waiting.cancel()

    assert (told[0], told[-1]) == ("loading: it does not listen yet", "loading weights: 50%")
