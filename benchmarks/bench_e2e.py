"""From "create an endpoint" to the first token, split by stage, against starting the same server by hand.

    python benchmarks/bench_e2e.py [--n 20] [--engines instant,llamacpp]

Starts its own all-in-one on free ports with an empty state directory and ends it afterwards. Each round
measures first the floor (the same server as a plain subprocess, started to its first token) and then
Moorage, so that both see the same machine. Prints a table and writes ``benchmarks/results/e2e.json``.
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
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import moorage
from moorage.agent.engines import ENGINES, Site
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.slots import parse_slots
from moorage.common.model.spec import EndpointSpec
from moorage.common.model.status import TERMINAL, SessionType, Status
from moorage.demo.model import write_tiny_gguf
from moorage.sdk import ApiError, Client, Unreachable, chat

HERE = Path(__file__).parent
LOOK_EVERY_S = 0.01
GIVE_UP_S = 60.0
STAGES = ("accept", "queue", "order", "load", "route + token")
EXPLAINED = {
    "accept": "request sent until the replica's session is in Postgres",
    "queue": "until the scheduler has placed it",
    "order": "until the agent says that it starts the process",
    "load": "until the engine has passed its probe and the session is RUNNING",
    "route + token": "until the first token has come through the proxy",
}


@dataclass(frozen=True)
class Platform:
    client: Client
    openai_url: str
    key: str


def specs(model: Path) -> dict[str, dict[str, Any]]:
    """What each engine under test is asked to serve; the name is filled in per round."""
    instant = [sys.executable, str(HERE / "instant_engine.py"), "{port}"]
    return {
        "instant": {"engine": "custom", "command": instant, "probe": {}},
        "llamacpp": {"engine": "llamacpp", "model": str(model)},
    }


def by_hand(asked: dict[str, Any], port: int) -> list[str]:
    """The very command line that the agent would use, from the agent's own code."""
    spec = EndpointSpec.model_validate({"name": "floor", **asked})
    kernel = KernelSpec(
        kernel_id=KernelId("floor"),
        session_id=SessionId("floor"),
        session_name="floor",
        session_type=SessionType.INFERENCE,
        runtime="process",
        engine=spec.engine,
        served_name=spec.name,
        model=spec.model or "",
        command=tuple(spec.command),
        slots=parse_slots(spec.resources),
    )
    site = Site(python=sys.executable, cores=len(os.sched_getaffinity(0)))
    return list(ENGINES[spec.engine].launch(kernel, host="127.0.0.1", port=port, site=site).argv)


@asynccontextmanager
async def all_in_one(home: Path) -> AsyncIterator[Platform]:
    """``moorage up`` on free ports; ended by SIGTERM, with a check that it went in order."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
    for setting in ("MANAGER__LISTEN", "MANAGER__LINK_LISTEN", "PROXY__LISTEN", "PROXY__INTERNAL_LISTEN"):
        env[f"MOORAGE_{setting}"] = "127.0.0.1:0"
    env["MOORAGE_COMMON__LOG_LEVEL"] = "warning"
    with (home.parent / "up.log").open("wb") as log:
        command = [sys.executable, "-m", "moorage", "up", "--home", str(home)]
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        at = await _connection(home, process)
        key = (home / "admin-key").read_text().strip()
        async with Client(at["url"], key) as client:
            await _until(client.list_agents, bool, "an agent")
            yield Platform(client, at["openai_url"], key)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    if code != 0:
        raise SystemExit(f"moorage up ended with {code}:\n{(home.parent / 'up.log').read_text()[-2000:]}")


async def _connection(home: Path, process: subprocess.Popen[bytes]) -> dict[str, str]:
    deadline = time.monotonic() + GIVE_UP_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            at: dict[str, str] = json.loads((home / "connection.json").read_text())
        except (FileNotFoundError, ValueError):
            at = {}
        if {"url", "openai_url"} <= at.keys():
            return at
        await asyncio.sleep(0.05)
    raise SystemExit(f"moorage up did not start:\n{(home.parent / 'up.log').read_text()[-2000:]}")


async def _until(look: Callable[[], Any], enough: Callable[[Any], bool], what: str) -> Any:
    deadline = time.monotonic() + GIVE_UP_S
    while not enough(found := await look()):
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {GIVE_UP_S:g} s for {what}; last seen: {found}")
        await asyncio.sleep(LOOK_EVERY_S)
    return found


async def first_token(openai_url: str, key: str, model: str) -> float:
    """Ask again and again until a token comes. Returns the wall time (unix seconds) of its arrival."""
    deadline = time.monotonic() + GIVE_UP_S
    while True:
        pieces = chat(openai_url, key, model, [{"role": "user", "content": "Hello"}], max_tokens=1)
        try:
            async with aclosing(pieces):
                await anext(pieces)
            return time.time()
        except (ApiError, Unreachable) as error:
            if time.monotonic() > deadline or (
                isinstance(error, ApiError) and error.status not in (404, 503)
            ):
                raise SystemExit(f"no token from {model}: {error}") from error
        await asyncio.sleep(LOOK_EVERY_S)


async def floor(asked: dict[str, Any]) -> float:
    """Seconds from starting the server by hand to its first token."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = time.time()
    process = subprocess.Popen(by_hand(asked, port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return await first_token(f"http://127.0.0.1:{port}/v1", "", "floor") - start
    finally:
        process.terminate()
        process.wait(10)


async def measured(at: Platform, asked: dict[str, Any], name: str) -> dict[str, float]:
    """Seconds of each stage, and in all, from the request to the first token through the proxy."""
    start = time.time()
    await at.client.create_endpoint(EndpointSpec.model_validate({"name": name, **asked}))
    token = await first_token(at.openai_url, at.key, name)
    replica = (await at.client.get_endpoint(name)).sessions[0]
    story = await at.client.history(replica.session_id)
    moments = {entry.to_status: entry.at.timestamp() for entry in story}
    order = (Status.PENDING, Status.SCHEDULED, Status.CREATING, Status.RUNNING)
    times = [start, *(moments[status] for status in order), token]
    await at.client.delete_endpoint(name)
    await _until(
        lambda: at.client.get_session(replica.session_id),
        lambda s: s.status in TERMINAL,
        f"the end of {name}",
    )
    stages = {stage: after - before for stage, before, after in zip(STAGES, times, times[1:], strict=False)}
    return stages | {"total": token - start}


async def compare(at: Platform, engine: str, asked: dict[str, Any], n: int) -> dict[str, Any]:
    """One round to warm up, then ``n`` that count."""
    floors: list[float] = []
    runs: list[dict[str, float]] = []
    for number in range(n + 1):
        plain = await floor(asked)
        ours = await measured(at, asked, f"{engine}-{number}")
        if number:
            floors.append(plain)
            runs.append(ours)
        print(f"\r{engine}: {number}/{n}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    rows = {name: _summary([run[name] for run in runs]) for name in (*STAGES, "total")}
    rows["floor"] = _summary(floors)
    ratios = {q: rows["total"][q] / rows["floor"][q] for q in ("median", "p90")}
    return {"rows": rows, "ratio": ratios, "runs": runs, "floors": floors}


def _summary(seconds: list[float]) -> dict[str, float]:
    p90 = statistics.quantiles(seconds, n=10, method="inclusive")[-1] if len(seconds) > 1 else seconds[0]
    return {"median": statistics.median(seconds), "p90": p90}


def table(name: str, result: dict[str, Any], n: int) -> str:
    lines = [f"### {name}, n = {n}", "", "| stage | median ms | p90 ms |", "|---|---:|---:|"]
    for row, found in result["rows"].items():
        shown = f"**{row}**" if row in ("total", "floor") else row
        lines.append(f"| {shown} | {1000 * found['median']:.0f} | {1000 * found['p90']:.0f} |")
    ratio = result["ratio"]
    lines.append(f"| **total ÷ floor** | **{ratio['median']:.2f}** | **{ratio['p90']:.2f}** |")
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
    parser = argparse.ArgumentParser(description="Create → RUNNING → first token, against the floor.")
    parser.add_argument("--n", type=int, default=20, help="rounds that count (20)")
    parser.add_argument("--engines", default="instant,llamacpp", help="which of instant, llamacpp")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "e2e.json")
    options = parser.parse_args()
    wanted = options.engines.split(",")
    report: dict[str, Any] = {"machine": machine(), "n": options.n, "engines": {}}
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as directory:
        model = Path(directory) / "tiny.gguf"
        write_tiny_gguf(model)
        known = specs(model)
        if options.n < 1 or not set(wanted) <= known.keys():
            parser.error(f"--n is 1 or more, --engines any of {', '.join(known)}")
        async with all_in_one(Path(directory) / "home") as at:
            for name in wanted:
                report["engines"][name] = await compare(at, name, known[name], options.n)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1))
    print("\n\n".join(table(name, result, options.n) for name, result in report["engines"].items()))
    print("\n" + "\n".join(f"{stage}: {meaning}" for stage, meaning in EXPLAINED.items()))
    about = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    print(f"\n{about}; every run is in {options.json.name}")


if __name__ == "__main__":
    asyncio.run(main())
