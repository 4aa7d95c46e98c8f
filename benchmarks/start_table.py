"""Results of ``start.py``, and their tables."""

from __future__ import annotations

from dataclasses import dataclass, field

from measuring import median, quantiles_ms

CONCURRENCY = 16
GOAL_MS = 20.0
GOAL_RATE = 0.9
GOAL_MB = 60.0
GOAL_CPU = 1.0
STAGES = ("SCHEDULED", "PREPARING", "CREATING", "RUNNING")


@dataclass
class StartResult:
    """Seconds per round. ``engine`` and ``baseline_engine``: the part spent in the Docker Engine
    for create and start. ``stages``: time from the request to each status."""

    baseline: list[float] = field(default_factory=list)
    baseline_engine: list[float] = field(default_factory=list)
    moorage: list[float] = field(default_factory=list)
    engine: list[float] = field(default_factory=list)
    ack: list[float] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in STAGES})
    baseline_16: list[float] = field(default_factory=list)
    moorage_16: list[float] = field(default_factory=list)
    idle: dict[str, float] = field(default_factory=dict)
    requests: list[list[str]] = field(default_factory=list)  # to the engine, until RUNNING

    @property
    def overhead(self) -> float:
        """Difference of the medians, without the time spent in the engine."""
        moorage = [took - engine for took, engine in zip(self.moorage, self.engine, strict=True)]
        baseline = [
            took - engine for took, engine in zip(self.baseline, self.baseline_engine, strict=True)
        ]
        return median(moorage) - median(baseline)


def tables(results: dict[str, StartResult]) -> str:
    lines = [
        "| runtime | baseline p50 / p90 ms | create → RUNNING p50 / p90 ms | overhead at p50 (goal "
        f"≤ {GOAL_MS:g} ms) | {CONCURRENCY} concurrent: baseline /s | Moorage /s "
        f"| ratio (goal ≥ {GOAL_RATE:g}) |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for runtime, result in results.items():
        baseline = quantiles_ms(result.baseline)
        ours = quantiles_ms(result.moorage)
        baseline_rate = CONCURRENCY / median(result.baseline_16)
        rate = CONCURRENCY / median(result.moorage_16)
        lines.append(
            f"| {runtime} | {baseline['p50']:.1f} / {baseline['p90']:.1f} "
            f"| {ours['p50']:.1f} / {ours['p90']:.1f} | {1000 * result.overhead:.1f} "
            f"| {baseline_rate:.1f} | {rate:.1f} | {rate / baseline_rate:.2f} |"
        )

    lines += [
        "",
        "| runtime | ack p50 ms | " + " | ".join(f"{name} p50 ms" for name in STAGES) + " |",
    ]
    lines += ["|---|" + "---:|" * (len(STAGES) + 1)]
    for runtime, result in results.items():
        stages = (f"{1000 * median(result.stages[name]):.1f}" for name in STAGES)
        lines.append(
            f"| {runtime} | {1000 * median(result.ack):.1f} | " + " | ".join(stages) + " |"
        )

    lines.append("")
    if (docker := results.get("docker")) is not None:
        counts = [len(requests) for requests in docker.requests]
        lines += [
            f"The engine took {1000 * median(docker.engine):.0f} ms for create and start with Moorage (p50), "
            f"and {1000 * median(docker.baseline_engine):.0f} ms for the baseline, both excluded above. "
            f"{median(counts):.0f} requests per start, such as {', '.join(docker.requests[-1])}.",
            "",
        ]

    for runtime, result in results.items():
        idle = result.idle
        lines.append(
            f"Idle agent with {idle['kernels']:.0f} kernels of {runtime}: {idle['rss_mb']:.0f} MB (goal < "
            f"{GOAL_MB:g}), of which {idle['own_mb']:.0f} private; "
            f"{idle['share_mb']:.0f} MB with shared program files divided among their users (PSS); "
            f"{idle['cpu_percent']:.2f} % of a core (goal < {GOAL_CPU:g})."
        )

    return "\n".join(lines)
