"""Start of a model on disk: ``moorage serve`` compared with starting the engine by hand, both until
the first token.

    python benchmarks/serve_start.py [--rounds 7] [--large] [--vllm .venv-vllm/bin/vllm]

The engines are llama.cpp and vLLM, the latter on the CPU with random weights. The demo's tiny model
starts in llama.cpp in less than a second, so the cost of the command line weighs most; ``--large``
adds a model of 650 MB, written for this run. Rounds alternate.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import bench_e2e
from bench_e2e import Platform, all_in_one, first_token, machine, measure_baseline
from moorage.common.model.status import TERMINAL
from moorage.demo import model as tiny

# Hidden size, layers, heads, key-value heads and feed-forward size of a model of 0.16 billion
# parameters.
LARGE = {
    "HIDDEN": 1024,
    "LAYERS": 14,
    "HEADS": 16,
    "KV_HEADS": 8,
    "FEED_FORWARD": 2816,
    "HEAD_DIM": 64,
}


VLLM_ARGS = [
    *("--load-format", "dummy", "--dtype", "float32", "--max-model-len", "512", "--enforce-eager"),
    *("--num-gpu-blocks-override", "64", "--block-size", "32", "--max-num-seqs", "4"),
]
VLLM_ENV = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


async def measure_serve(
    platform: Platform, home: Path, fields: dict[str, Any], name: str
) -> tuple[float, float]:
    """Seconds from the start of the command to its end, and to the first token through the
    proxy."""
    options = [f"--arg={one}" for one in fields.get("args", ())]
    options += [f"--env={key}={value}" for key, value in fields.get("env", {}).items()]
    options += [f"--resources={key}={value}" for key, value in fields.get("resources", {}).items()]
    began = time.time()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "moorage", "serve", fields["model"], "--engine", fields["engine"]),
        *("--name", name, *options),
        env=os.environ | {"MOORAGE_HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    ended = time.time()
    if process.returncode:
        raise SystemExit(f"moorage serve exited with {process.returncode}:\n{output.decode()}")

    token = await first_token(platform.openai_url, platform.key, name)
    (replica,) = (await platform.client.endpoints.get(name)).sessions
    await platform.client.endpoints.delete(name)
    while (await platform.client.sessions.get(replica.session_id)).status not in TERMINAL:
        await asyncio.sleep(0.05)

    return ended - began, token - began


async def compare(
    platform: Platform, home: Path, fields: dict[str, Any], rounds: int, *, vllm: str = "vllm"
) -> str:
    by_hand = []
    command = []
    token = []
    name = Path(fields["model"]).stem
    engine = fields["engine"]
    for number in range(rounds + 1):
        baseline = await measure_baseline(fields, vllm)
        ended, first = await measure_serve(platform, home, fields, f"{engine}-{name}-{number}")
        if number:  # the first round fills the caches
            by_hand.append(baseline)
            command.append(ended)
            token.append(first)

    ratio = statistics.median(one / base for one, base in zip(token, by_hand, strict=True))
    hand, ends, first = (statistics.median(each) for each in (by_hand, command, token))
    seconds = f"{hand:.2f} | {ends:.2f} | {first:.2f} | {first - hand:+.2f}"
    return f"| {engine}, {name} | {seconds} | **{ratio:.2f}** |"


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--large", action="store_true", help="also a model of 650 MB")
    parser.add_argument("--vllm", default="", help="also this vLLM")
    options = parser.parse_args()
    about = machine()
    bench_e2e.TIMEOUT_S = 300.0  # vLLM takes longer than the engines there
    print("| model | engine by hand, s | serve ends, s | first token, s | difference, s | ratio |")
    print("|---|---:|---:|---:|---:|---:|")

    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as directory:
        home = Path(directory) / "home"
        (models := Path(directory) / "models").mkdir()
        tiny.write_tiny_gguf(models / "tiny.gguf")
        measured: list[dict[str, Any]] = [
            {"engine": "llamacpp", "model": str(models / "tiny.gguf")}
        ]
        if options.vllm:
            tiny.write_tiny_llama_dir(models / "tiny")
            fields = {
                "engine": "vllm",
                "model": str(models / "tiny"),
                "args": VLLM_ARGS,
                "env": VLLM_ENV,
            }
            measured.append(fields | {"resources": {"cpu": "1", "mem": "2GiB"}})

        if options.large:
            measured.insert(1, {"engine": "llamacpp", "model": str(models / "large.gguf")})
            for name, value in LARGE.items():
                setattr(tiny, name, value)

            tiny.write_tiny_gguf(models / "large.gguf")

        settings = {"MOORAGE_AGENT__VLLM_COMMAND": options.vllm} if options.vllm else {}
        async with all_in_one(home, settings) as platform:
            for fields in measured:
                print(
                    await compare(platform, home, fields, options.rounds, vllm=options.vllm),
                    flush=True,
                )

    print("\n" + ", ".join(f"{name} {value}" for name, value in about.items()))


if __name__ == "__main__":
    asyncio.run(main())
