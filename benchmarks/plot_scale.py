"""Plots of docs/scale.md: docs/images/scale-*.svg from the measurements in docs/images/scale.json.

    python benchmarks/plot_scale.py [--to DIRECTORY]

The page names the command and the machine of each measurement. Needs matplotlib (extra `plot`).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams |= {"svg.hashsalt": "moorage", "svg.fonttype": "none", "font.size": 9}
from matplotlib import pyplot  # noqa: E402 - the back end is chosen first

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SIZE = (5.2, 3.0)


def agents(axes: Any, found: dict[str, Any]) -> None:
    axes.plot(found["agents"], found["manager_percent"], "o-", label="manager")
    axes.plot(found["agents"], found["postgres_percent"], "s-", label="Postgres")
    axes.set(xlabel="idle agents", ylabel="% of a core", ylim=(0, None), xlim=(0, None))


def groups(axes: Any, found: dict[str, Any]) -> None:
    for name, label in (
        ("first_ms", "first pass of a new leader"),
        ("unchanged_ms", "every group, nothing changed"),
        ("changed_ms", "a session in 1 % of the groups"),
    ):
        axes.plot(found["groups"], found[name], "o-", label=label)

    axes.set(
        xlabel="resource groups of 100 agents",
        ylabel="CPU of a pass, ms",
        xscale="log",
        yscale="log",
    )


def sessions(axes: Any, found: dict[str, Any]) -> None:
    axes.plot(found["arrivals_per_s"], found["manager_us"], "o-", label="manager")
    axes.plot(found["arrivals_per_s"], found["postgres_us"], "s-", label="Postgres")
    axes.set(
        xlabel="sessions per second", ylabel="CPU per session, µs", ylim=(0, None), xlim=(0, None)
    )


PLOTS = {"idle_agents": agents, "groups": groups, "sessions": sessions}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--to", type=Path, default=IMAGES)
    to = parser.parse_args().to
    measured = json.loads((IMAGES / "scale.json").read_text())
    for name, draw in PLOTS.items():
        figure, axes = pyplot.subplots(figsize=SIZE, layout="constrained")
        draw(axes, measured[name])
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        file = to / f"scale-{name.replace('_', '-')}.svg"
        figure.savefig(file, metadata={"Date": None, "Creator": None})

        # matplotlib ends some lines with a space.
        lines = (line.rstrip() for line in file.read_text().splitlines())
        file.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
