"""Comparison of scheduling policies: a table of statistics, and a plot of waits and utilization."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from moorage.cli import Cli, output
from moorage.common.model.durations import format_duration
from moorage.common.model.errors import InvalidInput, StartupError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from moorage.simulator.scheduler import ScheduleStatistics, SimulationResult

_COLUMNS = (
    "POLICY",
    "UTILIZATION",
    "MEAN WAIT",
    "P99 WAIT",
    "MAX WAIT",
    "LARGE WAIT",
    "SLOWDOWN",
    "BYPASSES",
    "MAX BYPASSES",
    "FAIRNESS",
)
_WINDOWS = 60  # points of the utilization curve
_SHARES = 1000  # the simulator counts 1/1000 of a device, and 1/1000 of a CPU
# The time axis uses the first unit whose limit in seconds is not exceeded.
_TIME_UNITS = (
    (300, "seconds", 1_000_000),
    (18_000, "minutes", 60_000_000),
    (float("inf"), "hours", 3_600_000_000),
)


def print_comparison(
    cli: Cli,
    statistics: Mapping[str, ScheduleStatistics],
    last_column: Literal["MAKESPAN", "UNSTARTED"],
) -> None:
    """Print one line per policy."""
    rows = []
    preempted = any(each.preemptions for each in statistics.values())
    for name, each in statistics.items():
        last = format_duration(each.makespan) if last_column == "MAKESPAN" else str(each.unstarted)
        rows.append((*_row(name, each), *([str(each.preemptions)] if preempted else []), last))

    columns = (*_COLUMNS, *(["PREEMPTIONS"] if preempted else []), last_column)
    output.print_table(cli.out, columns, rows)


def _row(name: str, statistics: ScheduleStatistics) -> tuple[str, ...]:
    waits = (statistics.mean_wait, statistics.p99_wait, statistics.max_wait)
    large = statistics.large_wait
    return (
        name,
        f"{statistics.utilization:.1%}",
        *(format_duration(wait) for wait in waits),
        "-" if large is None else format_duration(large),
        f"{statistics.slowdown:.1f}",
        f"{statistics.bypasses:.1f}",
        str(statistics.max_bypasses),
        f"{statistics.fairness:.3f}",
    )


def save_plot(results: Mapping[str, SimulationResult], path: Path, resource: str) -> None:
    """Plot the waits and the usage of ``resource`` over time for each policy. Raises
    ``InvalidInput`` for an unknown format, and ``StartupError`` if matplotlib is not installed."""
    if path.suffix not in (".png", ".svg"):
        raise InvalidInput(
            f"--plot {str(path)!r} has an unknown format",
            next_step="use a name that ends in .png or .svg",
        )

    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise StartupError(
            f"this installation cannot plot: {error.name} is missing",
            next_step="pip install 'moorage[plot]'",
        ) from error

    # With a fixed salt and no date, the same results produce the same file.
    with rc_context({"svg.hashsalt": "moorage"}):
        figure = Figure(figsize=(11, 4), layout="constrained")
        waits, use = figure.subplots(1, 2)
        lengths = [
            result.usage[-1][0] - result.usage[0][0] for result in results.values() if result.usage
        ]
        longest_s = max(lengths, default=0) / 1_000_000
        unit, micros = next(
            (name, micros) for limit, name, micros in _TIME_UNITS if longest_s <= limit
        )
        for name, result in results.items():
            _plot_policy(name, result, waits=waits, use=use, unit=micros)

        waits.set(
            xlabel=f"wait ({unit})", ylabel="share of sessions that waited longer", yscale="log"
        )
        use.set(
            xlabel=f"{unit} since the start",
            ylabel=f"{resource} in use, on average",
            ylim=(0, None),
        )
        waits.legend()
        figure.savefig(path, dpi=90, metadata={"Date": None} if path.suffix == ".svg" else None)


def _plot_policy(name: str, result: SimulationResult, waits: Axes, use: Axes, *, unit: int) -> None:
    from moorage.simulator.scheduler.statistics import utilization

    if not result.usage:
        return

    sorted_waits = sorted(o.started - o.arrived for o in result.outcomes if o.started is not None)
    shares = [1 - number / len(sorted_waits) for number in range(len(sorted_waits))]
    waits.step([wait / unit for wait in sorted_waits], shares, label=name, where="post")
    begin = result.usage[0][0]
    end = result.usage[-1][0]
    edges = [begin + (end - begin) * number // _WINDOWS for number in range(_WINDOWS + 1)]
    capacity = result.capacity / _SHARES
    means = [utilization(result, edges[n], edges[n + 1]) * capacity for n in range(_WINDOWS)]
    use.step([(at - edges[0]) / unit for at in edges[:-1]], means, label=name, where="post")
