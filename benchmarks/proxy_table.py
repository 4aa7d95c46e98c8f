"""Table of the proxy benchmark: medians, ratios to nginx within each round, and the goals."""

from __future__ import annotations

from typing import Any

from measuring import median

NGINX = "nginx"
# Ratios to nginx, and shares, that the proxy should reach (see benchmarks/RESULTS.md).
GOALS = {
    "json": 1.5,
    "per_s": 0.6,
    "streams": 1.15,
    "share": 0.98,
    "transit_ms": 5.0,
    "latency": 2.0,
}
KIB = 64.0
ROUTES_MS = 1.0
WORKERS = 1.05


def values(rounds: list[dict[str, float]], key: str) -> list[float]:
    return [one[key] for one in rounds]


def ratio(part: dict[str, Any], name: str, key: str, base: str = NGINX) -> float:
    """The median over the rounds of the ratio to ``base``."""
    pairs = zip(values(part[name], key), values(part.get(base, []), key), strict=False)
    return median([own / peer for own, peer in pairs if peer])


def added_ms(part: dict[str, Any], name: str) -> float:
    """The latency that a proxy adds to the upstream's median."""
    pairs = zip(values(part[name], "p50"), values(part["direct"], "p50"), strict=False)
    return median([own - direct for own, direct in pairs])


def table(result: dict[str, Any]) -> str:
    parts = []
    for name, part in result.items():
        if name.startswith("json"):
            parts.append(_json(name, part))
        elif name == "streams":
            parts.append(_streams(part))
        elif name == "latency":
            parts.append(_latency(part))
        elif name == "memory":
            lines = [f"| {peer} | {rounds[0]['kib']:.1f} |" for peer, rounds in part.items()]
            parts.append("\n".join(["| memory | KiB per open stream |", "|---|---:|", *lines]))
        elif name == "routes":
            lines = [f"| {step} | {ms:.3f} |" for step, ms in part.items()]
            parts.append(
                "\n".join(["| one changed replica of 10,000 | ms |", "|---|---:|", *lines])
            )

    return "\n\n".join(parts)


def _json(name: str, part: dict[str, Any]) -> str:
    lines = [
        f"| {name.replace('json', 'JSON,')} connections | CPU µs a request | ÷ nginx | requests/s | ÷ nginx "
        "| core | failed |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for peer, rounds in part.items():
        if not rounds:
            continue

        us, per_s, core = (median(values(rounds, key)) for key in ("us", "per_s", "core"))
        cpu = f"{us:.0f} | {ratio(part, peer, 'us'):.2f}" if us else " | "
        rate = f"{per_s:.0f} | {ratio(part, peer, 'per_s'):.2f}"
        lines.append(
            f"| {peer} | {cpu} | {rate} | {core:.0%} | {sum(values(rounds, 'failed')):.0f} |"
        )

    return "\n".join(lines)


def _streams(part: dict[str, Any]) -> str:
    lines = [
        "| 256 streams, a token each 5 ms | of the tokens | CPU µs a token | ÷ nginx | transit p50, ms "
        "| p99, ms | lost |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for peer, rounds in part.items():
        share, us, p50, p99 = (median(values(rounds, key)) for key in ("share", "us", "p50", "p99"))
        cpu = f"{us:.1f} | {ratio(part, peer, 'us'):.2f}" if us else " | "
        lost = sum(values(rounds, "failed"))
        lines.append(f"| {peer} | {share:.1%} | {cpu} | {p50:.1f} | {p99:.1f} | {lost:.0f} |")

    return "\n".join(lines)


def _latency(part: dict[str, Any]) -> str:
    lines = [
        "| 300 requests/s | p50, ms | p99, ms | added p50, ms | ÷ nginx | failed |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for peer, rounds in part.items():
        p50 = median(values(rounds, "p50"))
        p99 = median(values(rounds, "p99"))
        added = added_ms(part, peer)
        base = added_ms(part, NGINX) if NGINX in part else float("nan")
        more = f"{added:.2f} | {added / base:.2f}" if peer != "direct" else " | "
        lines.append(
            f"| {peer} | {p50:.2f} | {p99:.2f} | {more} | {sum(values(rounds, 'failed')):.0f} |"
        )

    return "\n".join(lines)


def check(result: dict[str, Any]) -> list[str]:
    """Results that miss their goal by more than a factor of two. If nginx is not installed, aiohttp
    takes its place: a bare aiohttp relay costs twelve to fourteen times as much as nginx."""
    found: list[str] = []

    def expect(what: str, value: float, limit: float) -> None:
        if not value <= limit:
            found.append(f"{what}: {value:.2f}, more than {limit:.2f}")

    for name, part in result.items():
        if name.startswith("json"):
            expect(f"{name}: failed", sum(values(part["moorage"], "failed")), 0)
            if NGINX in part:
                expect(f"{name}: CPU ÷ nginx", ratio(part, "moorage", "us"), 2 * GOALS["json"])
            else:
                expect(f"{name}: CPU ÷ aiohttp", ratio(part, "moorage", "us", "aiohttp"), 0.5)
        elif name == "streams":
            offered = median(values(part["direct"], "share"))
            share = median(values(part["moorage"], "share")) / offered
            expect("streams: tokens missing", 1 - share, 2 * (1 - GOALS["share"]))
            if NGINX in part:
                expect("streams: CPU ÷ nginx", ratio(part, "moorage", "us"), 2 * GOALS["streams"])
        elif name == "memory":
            expect("KiB per stream", part["moorage"][0]["kib"], 2 * KIB)
        elif name == "routes":
            for step, ms in part.items():
                if "save" not in step:
                    expect(f"{step}, ms", ms, 2 * ROUTES_MS)

    return found
