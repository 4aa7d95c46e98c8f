"""The proxy compared with its peers, all on one core, in front of one upstream that is not a
bottleneck.

    python benchmarks/proxy.py [--only json streams latency memory routes] [--peers litellm]
    [--check] python benchmarks/proxy.py --soak 3600 [--per-s 80]

Starts Postgres, a manager, an agent with the upstream as its kernel, a proxy with all features on,
and the peers that are installed: nginx, HAProxy, a relay on aiohttp, and with ``--peers`` those
from PyPI (``--install`` installs them in separate environments). They all run; in each round they
take turns in a shuffled order. Ratios are taken within a round; the table has their medians. Load,
upstream and manager are on the other cores; with two cores, they share one.

CPU per request comes from the scheduler's statistics of the proxy's processes, so that it hardly
depends on what else the machine does. Requests per second are meaningful only if the proxy's core
was full.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import sys
from pathlib import Path
from typing import Any

import uvloop

from measuring import family, machine, machine_line, quantiles_ms, rss_mb
from proxy_load import Streams, at_fixed_times, flood
from proxy_peers import ALWAYS, CHAT, FROM_PYPI, VARIANTS, Proxy, install, proxies, site
from proxy_soak import soak
from proxy_table import check, table
from scale_meter import Meter
from scale_routes import Routes

HERE = Path(__file__).parent
PARTS = ("json", "streams", "latency", "memory", "routes")
STREAMS = 256
INTERVAL_MS = 5
PER_S = 300.0
_ROUTES = 500  # endpoints with 20 replicas each
Rounds = dict[str, list[dict[str, float]]]


async def measure_json(
    running: list[Proxy], connections: int, options: argparse.Namespace
) -> Rounds:
    rounds: Rounds = {proxy.name: [] for proxy in running}
    for number in range(options.rounds + 1):
        for proxy in random.sample(running, len(running)):
            loop = asyncio.get_running_loop()
            seconds = options.seconds if number else 1.0
            before = proxy.cpu_s()
            began = loop.time()
            answered, failed = await flood(
                proxy.address, CHAT, proxy.key, connections, seconds=seconds
            )
            took = loop.time() - began
            used = proxy.cpu_s() - before
            if number and answered:  # the first round warms up
                rounds[proxy.name].append(
                    {
                        "us": 1e6 * used / answered,
                        "per_s": answered / took,
                        "core": used / took,
                        "failed": failed,
                    }
                )

    return rounds


async def measure_streams(running: list[Proxy], options: argparse.Namespace) -> Rounds:
    rounds: Rounds = {proxy.name: [] for proxy in running}
    for _ in range(max(2, options.rounds - 2)):
        for proxy in random.sample(running, len(running)):
            streams = Streams()
            await streams.open(proxy.address, STREAMS, INTERVAL_MS, proxy.key)
            await asyncio.sleep(1)
            loop = asyncio.get_running_loop()
            streams.begin()
            before = proxy.cpu_s()
            began = loop.time()
            await asyncio.sleep(options.seconds)
            used = proxy.cpu_s() - before
            took = loop.time() - began
            tokens = streams.tokens
            lost = streams.lost
            transit = quantiles_ms([ns / 1e9 for ns in streams.transit_ns])
            streams.close()
            await asyncio.sleep(0.3)
            offered = STREAMS * took * 1000 / INTERVAL_MS
            rounds[proxy.name].append(
                {
                    "us": 1e6 * used / max(tokens, 1),
                    "share": tokens / offered,
                    "p50": transit["p50"],
                    "p99": transit["p99"],
                    "core": used / took,
                    "failed": lost,
                }
            )

    return rounds


async def measure_latency(running: list[Proxy], options: argparse.Namespace) -> Rounds:
    rounds: Rounds = {proxy.name: [] for proxy in running}
    for _ in range(options.rounds):
        for proxy in random.sample(running, len(running)):
            seconds = options.seconds / 2
            latencies, failed = await at_fixed_times(
                proxy.address, CHAT, proxy.key, PER_S, seconds=seconds
            )
            rounds[proxy.name].append(quantiles_ms(latencies) | {"failed": failed})
    return rounds


async def measure_memory(running: list[Proxy], count: int) -> Rounds:
    """KiB per open stream, with a token every five seconds."""
    rounds: Rounds = {}
    for proxy in running:
        if not proxy.pid:
            continue

        before = own_mb(proxy)
        streams = Streams()
        await streams.open(proxy.address, count, 5000, proxy.key)
        await asyncio.sleep(6)
        grown = own_mb(proxy) - before
        rounds[proxy.name] = [{"kib": 1024 * grown / count, "failed": count - len(streams.started)}]
        streams.close()
        await asyncio.sleep(2)

    return rounds


def own_mb(proxy: Proxy) -> float:
    return sum(rss_mb(pid, "RssAnon") for pid in family(proxy.pid))


async def measure_routes() -> dict[str, float]:
    """Milliseconds that one changed replica of 10,000 costs the manager and the proxy."""
    meter = Meter(0)
    async with Routes("", _ROUTES) as routes:
        for number in range(4):
            async with meter.round(kept=number > 0):
                await routes.round(meter)
    return meter.medians_ms()


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async with site() as started, proxies(started, options.proxies) as running:
        by_name = list(running.values())
        for part in options.only:
            print(f"{part} …", end=" ", file=sys.stderr, flush=True)
            if part == "json":
                for connections in (32,) if options.check else (32, 256):
                    found[f"json {connections}"] = await measure_json(by_name, connections, options)
            elif part == "streams":
                fit = [proxy for proxy in by_name if proxy.name != "litellm" or options.seconds > 2]
                found[part] = await measure_streams(fit, options)
            elif part == "latency":
                fit = [proxy for proxy in by_name if proxy.name != "litellm"]
                found[part] = await measure_latency(fit, options)
            elif part == "memory":
                fit = [proxy for proxy in by_name if proxy.name not in FROM_PYPI]
                found[part] = await measure_memory(fit, options.streams)
            else:
                found[part] = await measure_routes()

    print(file=sys.stderr)
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--proxies", nargs="+", default=[*ALWAYS, *VARIANTS], metavar="PROXY")
    parser.add_argument("--peers", nargs="+", choices=FROM_PYPI, default=[], help="from PyPI, too")
    parser.add_argument("--install", action="store_true", help="install those peers first")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4, help="of each turn (4)")
    parser.add_argument(
        "--streams", type=int, default=5000, help="open streams of the memory part (5000)"
    )
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="churn, and look for leaks")
    parser.add_argument(
        "--per-s", type=float, default=0, help="requests a second of the soak (0: no limit)"
    )
    parser.add_argument(
        "--check", action="store_true", help="short form; fails beyond twice the goals"
    )
    parser.add_argument("--json", type=Path, default=HERE / "results" / "proxy.json")
    options = parser.parse_args()
    options.proxies += options.peers

    if options.check:
        options.rounds = 2
        options.seconds = 0.7
        options.only = ["json", "streams", "routes"]
        options.proxies = ["direct", "nginx", "aiohttp", "moorage"]

    return options


async def main() -> None:
    options = arguments()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for name in options.peers if options.install else ():
        install(name)

    about = machine()
    if options.soak:
        result = await soak(options.soak, options.per_s)
    else:
        result = await measure(options)

    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"machine": about} | result, indent=1))
    if not options.soak:
        print(table(result) + "\n\n" + machine_line(about))
    if not options.soak and options.check and (problems := check(result)):
        sys.exit("; ".join(problems))


if __name__ == "__main__":
    uvloop.run(main())
