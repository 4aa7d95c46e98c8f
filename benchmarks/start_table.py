"""What ``start.py`` found, and its tables."""

from __future__ import annotations

from dataclasses import dataclass, field

from measuring import median, quantiles_ms

AT_ONCE = 16
GOAL_MS, GOAL_RATE, GOAL_MB, GOAL_CPU = 20.0, 0.9, 60.0, 1.0
STAGES = ("SCHEDULED", "PREPARING", "CREATING", "RUNNING")


@dataclass
class Found:
    """Seconds, one for each round; ``stages``: since the request was sent. ``engine``: of what is ours, or of
    the floor, what the engine took to create and to start."""

    floor: list[float] = field(default_factory=list)
    floor_engine: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    engine: list[float] = field(default_factory=list)
    ack: list[float] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in STAGES})
    floor_16: list[float] = field(default_factory=list)
    ours_16: list[float] = field(default_factory=list)
    idle: dict[str, float] = field(default_factory=dict)
    asked: list[list[str]] = field(default_factory=list)  # the engine, from the request to RUNNING

    @property
    def added(self) -> float:
        """At p50."""
        ours = [took - engine for took, engine in zip(self.ours, self.engine, strict=True)]
        floor = [took - engine for took, engine in zip(self.floor, self.floor_engine, strict=True)]
        return median(ours) - median(floor)


def tables(all_found: dict[str, Found]) -> str:
    lines = [
        "| runtime | floor p50 / p90 ms | create → RUNNING p50 / p90 ms | added at p50 (goal "
        f"≤ {GOAL_MS:g} ms) | {AT_ONCE} at once: floor /s | ours /s | ÷ floor (goal ≥ {GOAL_RATE:g}) |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for runtime, found in all_found.items():
        floor, ours = quantiles_ms(found.floor), quantiles_ms(found.ours)
        raw, rate = AT_ONCE / median(found.floor_16), AT_ONCE / median(found.ours_16)
        lines.append(
            f"| {runtime} | {floor['p50']:.1f} / {floor['p90']:.1f} | {ours['p50']:.1f} / {ours['p90']:.1f} "
            f"| {1000 * found.added:.1f} | {raw:.1f} | {rate:.1f} | {rate / raw:.2f} |"
        )
    lines += ["", "| runtime | ack p50 ms | " + " | ".join(f"{name} p50 ms" for name in STAGES) + " |"]
    lines += ["|---|" + "---:|" * (len(STAGES) + 1)]
    for runtime, found in all_found.items():
        stages = (f"{1000 * median(found.stages[name]):.1f}" for name in STAGES)
        lines.append(f"| {runtime} | {1000 * median(found.ack):.1f} | " + " | ".join(stages) + " |")
    lines.append("")
    if (docker := all_found.get("docker")) is not None:
        counts = [len(asked) for asked in docker.asked]
        lines += [
            f"The engine itself took {1000 * median(docker.engine):.0f} ms to create and start for us (p50), "
            f"{1000 * median(docker.floor_engine):.0f} for the floor; added is what else differs. Asked "
            f"{median(counts):.0f} times per start, like {', '.join(docker.asked[-1])}.",
            "",
        ]
    for runtime, found in all_found.items():
        rest = found.idle
        lines.append(
            f"Agent at rest with {rest['kernels']:.0f} kernels of {runtime}: {rest['rss_mb']:.0f} MB (goal < "
            f"{GOAL_MB:g}), of which {rest['own_mb']:.0f} its own; "
            f"{rest['share_mb']:.0f} MB with program files shared by all that have them open; "
            f"{rest['cpu_percent']:.2f} % of a core (goal < {GOAL_CPU:g})."
        )
    return "\n".join(lines)
