"""Start of a model on the disk: ``moorage serve`` against the engine by hand, both until the first token.

    python benchmarks/serve_start.py [--rounds 7] [--large]

The engine is llama.cpp. The tiny model of the demo starts in less than a second, so what the command line
costs weighs most; ``--large`` adds a model of 650 MB, written for this run. Rounds alternate.
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

from bench_e2e import Platform, all_in_one, first_token, machine, measure_baseline
from moorage.common.model.status import TERMINAL
from moorage.demo import model as tiny

# Hidden size, layers, heads, key-value heads and feed-forward size of a model of 0.16 billion parameters.
LARGE = {"HIDDEN": 1024, "LAYERS": 14, "HEADS": 16, "KV_HEADS": 8, "FEED_FORWARD": 2816, "HEAD_DIM": 64}


async def measure_serve(platform: Platform, home: Path, model: Path, name: str) -> tuple[float, float]:
    """Seconds from the start of the command to its end, and to the first token through the proxy."""
    began = time.time()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "moorage", "serve", str(model), "--name", name),
        env=os.environ | {"MOORAGE_HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    ended = time.time()
    if process.returncode:
        raise SystemExit(f"moorage serve exited with {process.returncode}:\n{output.decode()}")
    token = await first_token(platform.openai_url, platform.key, name)
    (replica,) = (await platform.client.get_endpoint(name)).sessions
    await platform.client.delete_endpoint(name)
    while (await platform.client.get_session(replica.session_id)).status not in TERMINAL:
        await asyncio.sleep(0.05)
    return ended - began, token - began


async def compare(platform: Platform, home: Path, model: Path, rounds: int) -> str:
    by_hand, command, token = [], [], []
    for number in range(rounds + 1):
        baseline = await measure_baseline({"engine": "llamacpp", "model": str(model)})
        ended, first = await measure_serve(platform, home, model, f"{model.stem}-{number}")
        if number:  # the first round fills the caches
            by_hand.append(baseline)
            command.append(ended)
            token.append(first)
    ratio = statistics.median(one / base for one, base in zip(token, by_hand, strict=True))
    hand, ends, first = (statistics.median(each) for each in (by_hand, command, token))
    size = model.stat().st_size / 1e6
    return (
        f"| {size:.0f} MB | {hand:.2f} | {ends:.2f} | {first:.2f} | {first - hand:+.2f} | **{ratio:.2f}** |"
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--large", action="store_true", help="also a model of 650 MB")
    options = parser.parse_args()
    about = machine()
    print("| model | engine by hand, s | serve ends, s | first token, s | difference, s | ratio |")
    print("|---|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as directory:
        home = Path(directory) / "home"
        models = [Path(directory) / "tiny.gguf"]
        tiny.write_tiny_gguf(models[0])
        if options.large:
            models.append(Path(directory) / "large.gguf")
            for name, value in LARGE.items():
                setattr(tiny, name, value)
            tiny.write_tiny_gguf(models[1])
        async with all_in_one(home) as platform:
            for model in models:
                print(await compare(platform, home, model, options.rounds), flush=True)
    print("\n" + ", ".join(f"{name} {value}" for name, value in about.items()))


if __name__ == "__main__":
    asyncio.run(main())
