"""Time from creating an endpoint to its first token, by stage. Baseline: starting the same server
by hand.

    python benchmarks/bench_e2e.py [--n 20] [--engines instant,llamacpp]

Starts an all-in-one on free ports with an empty state directory, and stops it afterwards. Each
round measures the baseline (the same server as a plain subprocess, from start to first token) and
then Moorage, so that both run under the same conditions. Prints a table and writes
``benchmarks/results/e2e.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import moorage
from moorage.agent.engines import ENGINES, NodeInfo
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.slots import parse_slots
from moorage.common.model.spec import EndpointSpec
from moorage.common.model.status import TERMINAL, SessionType, Status
from moorage.demo.model import write_tiny_gguf
from moorage.sdk import ApiError, Client, Unreachable, chat

HERE = Path(__file__).parent
POLL_INTERVAL_S = 0.01
TIMEOUT_S = 60.0
STAGES = ("accept", "queue", "order", "load", "route + token")
DESCRIPTIONS = {
    "accept": "from the request until the replica's session is in Postgres",
    "queue": "until the scheduler has placed it",
    "order": "until the agent reports that it starts the process",
    "load": "until the engine passes its probe and the session is RUNNING",
    "route + token": "until the first token arrives through the proxy",
}


@dataclass(frozen=True)
class Platform:
    client: Client
    openai_url: str
    key: str


def specs(model: Path) -> dict[str, dict[str, Any]]:
    """Endpoint specs by engine, without the name, which each round sets."""
    instant = [sys.executable, str(HERE / "instant_engine.py"), "{port}"]
    return {
        "instant": {"engine": "custom", "command": instant, "probe": {}},
        "llamacpp": {"engine": "llamacpp", "model": str(model)},
    }


def server_command(fields: dict[str, Any], port: int, vllm: str = "vllm") -> list[str]:
    """The command line that the agent would use, from the agent's own code. ``vllm``: the agent's
    vLLM."""
    spec = EndpointSpec.model_validate({"name": "baseline", **fields})
    kernel = KernelSpec(
        kernel_id=KernelId("baseline"),
        session_id=SessionId("baseline"),
        session_name="baseline",
        session_type=SessionType.INFERENCE,
        runtime="process",
        engine=spec.engine,
        served_name=spec.name,
        model=spec.model or "",
        args=tuple(spec.args),
        command=tuple(spec.command),
        slots=parse_slots(spec.resources),
    )
    node = NodeInfo(python=sys.executable, vllm_command=vllm, cores=len(os.sched_getaffinity(0)))

    return list(
        ENGINES[spec.engine].invocation(kernel, host="127.0.0.1", port=port, node=node).argv
    )


@asynccontextmanager
async def all_in_one(
    home: Path, settings: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[Platform]:
    """``moorage up`` on free ports, with more ``settings`` in its environment. Stops it with
    SIGTERM and checks its exit code."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
    for setting in (
        "MANAGER__LISTEN",
        "MANAGER__LINK_LISTEN",
        "PROXY__LISTEN",
        "PROXY__INTERNAL_LISTEN",
    ):
        env[f"MOORAGE_{setting}"] = "127.0.0.1:0"

    env |= {"MOORAGE_COMMON__LOG_LEVEL": "warning", **settings}
    with (home.parent / "up.log").open("wb") as log:
        command = [sys.executable, "-m", "moorage", "up", "--home", str(home)]
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)

    try:
        addresses = await _connection(home, process)
        key = (home / "admin-key").read_text().strip()
        async with Client(addresses["url"], key) as client:
            await _until(client.agents.list, bool, "an agent")
            yield Platform(client, addresses["openai_url"], key)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            raise

    if code != 0:
        raise SystemExit(
            f"moorage up exited with {code}:\n{(home.parent / 'up.log').read_text()[-2000:]}"
        )


async def _connection(home: Path, process: subprocess.Popen[bytes]) -> dict[str, str]:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            addresses: dict[str, str] = json.loads((home / "connection.json").read_text())
        except (FileNotFoundError, ValueError):
            addresses = {}

        if {"url", "openai_url"} <= addresses.keys():
            return addresses

        await asyncio.sleep(0.05)

    raise SystemExit(f"moorage up did not start:\n{(home.parent / 'up.log').read_text()[-2000:]}")


async def _until(poll: Callable[[], Any], accept: Callable[[Any], bool], description: str) -> Any:
    deadline = time.monotonic() + TIMEOUT_S
    while not accept(value := await poll()):
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {TIMEOUT_S:g} s for {description}; last value: {value}")
        await asyncio.sleep(POLL_INTERVAL_S)
    return value


async def first_token(openai_url: str, key: str, model: str) -> float:
    """Retry until a token arrives. Returns the time of its arrival, in seconds since the epoch."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        pieces = chat(openai_url, key, model, [{"role": "user", "content": "Hello"}], max_tokens=1)
        try:
            async with aclosing(pieces):
                await anext(pieces, "")  # the token of a random model may have no text
            return time.time()
        except (ApiError, Unreachable) as error:
            if time.monotonic() > deadline or (
                isinstance(error, ApiError) and error.status not in (404, 503)
            ):
                raise SystemExit(f"no token from {model}: {error}") from error

        await asyncio.sleep(POLL_INTERVAL_S)


async def measure_baseline(fields: dict[str, Any], vllm: str = "vllm") -> float:
    """Seconds from starting the server by hand to its first token."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    start = time.time()
    process = subprocess.Popen(
        server_command(fields, port, vllm),
        env=os.environ | fields.get("env", {}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        return await first_token(f"http://127.0.0.1:{port}/v1", "", "baseline") - start
    finally:
        process.terminate()
        process.wait(30)


async def measure_endpoint(
    platform: Platform, fields: dict[str, Any], name: str
) -> dict[str, float]:
    """Seconds of each stage, and their total, from the request to the first token through the
    proxy."""
    start = time.time()
    await platform.client.endpoints.create(EndpointSpec.model_validate({"name": name, **fields}))
    token = await first_token(platform.openai_url, platform.key, name)
    replica = (await platform.client.endpoints.get(name)).sessions[0]
    history = await platform.client.sessions.history(replica.session_id)
    changed_at = {entry.to_status: entry.at.timestamp() for entry in history}

    # Reports are coalesced, so a fast kernel is RUNNING in its first report. CREATING takes no time
    # then.
    changed_at.setdefault(Status.CREATING, changed_at[Status.RUNNING])
    order = (Status.PENDING, Status.SCHEDULED, Status.CREATING, Status.RUNNING)
    times = [start, *(changed_at[status] for status in order), token]
    await platform.client.endpoints.delete(name)
    await _until(
        lambda: platform.client.sessions.get(replica.session_id),
        lambda s: s.status in TERMINAL,
        f"the end of {name}",
    )
    stages = {
        stage: after - before
        for stage, before, after in zip(STAGES, times, times[1:], strict=False)
    }

    return stages | {"total": token - start}


async def compare(
    platform: Platform, engine: str, fields: dict[str, Any], n: int
) -> dict[str, Any]:
    """One warm-up round, then ``n`` measured rounds."""
    baselines: list[float] = []
    runs: list[dict[str, float]] = []
    for number in range(n + 1):
        baseline = await measure_baseline(fields)
        run = await measure_endpoint(platform, fields, f"{engine}-{number}")
        if number:
            baselines.append(baseline)
            runs.append(run)

        print(f"\r{engine}: {number}/{n}", end="", file=sys.stderr, flush=True)

    print(file=sys.stderr)
    rows = {name: _summary([run[name] for run in runs]) for name in (*STAGES, "total")}
    rows["baseline"] = _summary(baselines)
    ratios = {q: rows["total"][q] / rows["baseline"][q] for q in ("median", "p90")}

    return {"rows": rows, "ratio": ratios, "runs": runs, "baselines": baselines}


def _summary(seconds: list[float]) -> dict[str, float]:
    p90 = (
        statistics.quantiles(seconds, n=10, method="inclusive")[-1]
        if len(seconds) > 1
        else seconds[0]
    )
    return {"median": statistics.median(seconds), "p90": p90}


def table(name: str, result: dict[str, Any], n: int) -> str:
    lines = [f"### {name}, n = {n}", "", "| stage | median ms | p90 ms |", "|---|---:|---:|"]
    for row, times in result["rows"].items():
        label = f"**{row}**" if row in ("total", "baseline") else row
        lines.append(f"| {label} | {1000 * times['median']:.0f} | {1000 * times['p90']:.0f} |")
    ratio = result["ratio"]
    lines.append(f"| **total ÷ baseline** | **{ratio['median']:.2f}** | **{ratio['p90']:.2f}** |")
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    return {
        "moorage": moorage.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "load_before": os.getloadavg()[0],
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


async def main() -> None:
    parser = argparse.ArgumentParser(
        description="Endpoint start-up time, compared with a baseline."
    )
    parser.add_argument("--n", type=int, default=20, help="measured rounds (20)")
    parser.add_argument(
        "--engines", default="instant,llamacpp", help="comma-separated: instant, llamacpp"
    )
    parser.add_argument("--json", type=Path, default=HERE / "results" / "e2e.json")
    options = parser.parse_args()
    engines = options.engines.split(",")
    report: dict[str, Any] = {"machine": machine(), "n": options.n, "engines": {}}
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as directory:
        model = Path(directory) / "tiny.gguf"
        write_tiny_gguf(model)
        fields_by_engine = specs(model)
        if options.n < 1 or not set(engines) <= fields_by_engine.keys():
            parser.error(f"--n must be at least 1, --engines any of {', '.join(fields_by_engine)}")

        async with all_in_one(Path(directory) / "home") as platform:
            for name in engines:
                report["engines"][name] = await compare(
                    platform, name, fields_by_engine[name], options.n
                )

    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1))
    print("\n\n".join(table(name, result, options.n) for name, result in report["engines"].items()))
    print("\n" + "\n".join(f"{stage}: {meaning}" for stage, meaning in DESCRIPTIONS.items()))
    about = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    print(f"\n{about}; all runs are in {options.json.name}")


if __name__ == "__main__":
    asyncio.run(main())
