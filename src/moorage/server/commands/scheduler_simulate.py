"""``moorage scheduler``: policies tried on work that is made up or was recorded. No manager is asked."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import Cli, app, command, output
from moorage.common.model.durations import format_duration
from moorage.common.model.errors import InvalidInput, StartupError
from moorage.server.process import missing_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from moorage.simulator.scheduler import Figures, Played
    from moorage.simulator.scheduler.traces import Job

scheduler = typer.Typer(no_args_is_help=True, help="Try policies of scheduling before using them.")
app.add_typer(scheduler, name="scheduler")

_WINDOWS = 60  # of the plot over time
COLUMNS = (
    "POLICY", "USED", "MEAN WAIT", "P99 WAIT", "MAX WAIT", "LARGE WAIT", "SLOWDOWN", "BYPASSES", "MOST",
    "FAIRNESS", "MAKESPAN",
)  # fmt: skip


@command(scheduler)
def simulate(
    cli: Cli,
    trace: Annotated[
        str, typer.Option(help="uniform, mixed, bursty, heavy-user, or a file of jobs: FILE.jsonl.")
    ] = "mixed",
    policy: Annotated[
        str, typer.Option(help="With commas: strict, skip, greedy, backfill, lifo, drf.")
    ] = "strict,skip,backfill",
    agents: Annotated[int, typer.Option(min=1, max=10_000, help="How many agents.")] = 16,
    gpus: Annotated[int, typer.Option(min=1, max=1024, help="GPUs of each.")] = 8,
    jobs: Annotated[int, typer.Option(min=1, max=100_000, help="How many jobs are made up.")] = 1000,
    load: Annotated[
        float,
        typer.Option(min=0.01, max=100, help="What they ask for of all GPUs while they arrive; 1: all."),
    ] = 0.9,
    estimates: Annotated[
        str, typer.Option(help="What is known of their run times: exact, padded (1 to 4 times) or none.")
    ] = "exact",
    seed: Annotated[int, typer.Option(help="The same seed: the same jobs.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(help="Draw waits and use over time into this .png or .svg.")
    ] = None,
) -> None:
    """Play jobs on agents in virtual time, with the real planner, and compare policies.

    \b
    Examples:
      moorage scheduler simulate --trace mixed --policy strict,skip,backfill --plot waits.png
      moorage scheduler simulate --trace jobs.jsonl --policy backfill,drf --agents 4
    A line of the file: {"at_s": 0, "gpus": 2, "run_s": 60, "user": "ann", "limit_s": 90}
    """
    try:
        from moorage.simulator.scheduler import POLICIES, Floor, figures, generate, play
    except ImportError as error:
        raise missing_extra("manager", error) from error
    names = [name.strip() for name in policy.split(",") if name.strip()]
    unknown = [name for name in names if name not in POLICIES]
    if unknown or not names:
        found = unknown[0] if unknown else policy
        raise InvalidInput(f"--policy {found!r} is not known", next_step=f"one of: {', '.join(POLICIES)}")
    floor = Floor(agents, gpus)
    if trace.endswith(".jsonl"):
        work = _read(Path(trace))
    else:
        work = generate(trace, jobs, floor.total, load, estimates, Random(seed))
    played = {name: play(work, floor, POLICIES[name]) for name in names}
    found_ = {name: figures(each) for name, each in played.items()}
    if plot is not None:
        draw(played, plot)
    if cli.json:
        cli.print_json({"jobs": len(work), "policies": {name: asdict(f) for name, f in found_.items()}})
        return
    output.print_table(cli.out, COLUMNS, [row(name, each) for name, each in found_.items()])
    unstarted = max(each.unstarted for each in found_.values())
    if unstarted:
        cli.say(f"{unstarted} jobs ask for more than {agents} agents of {gpus} GPUs have: they never start")


def _read(path: Path) -> tuple[Job, ...]:
    from moorage.simulator.scheduler import read_trace

    try:
        with path.open(encoding="utf-8") as file:
            return read_trace(file)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"--trace {str(path)!r} cannot be read: {error}") from error


def row(name: str, found: Figures) -> tuple[str, ...]:
    waits = (found.mean_wait, found.p99_wait, found.max_wait)
    large = found.large_wait
    return (
        name,
        f"{found.utilisation:.1%}",
        *(format_duration(wait) for wait in waits),
        "-" if large is None else format_duration(large),
        f"{found.slowdown:.1f}",
        f"{found.bypasses:.1f}",
        str(found.most_bypassed),
        f"{found.fairness:.3f}",
        format_duration(found.makespan),
    )


# Of the plot: up to so many of them are told in it.
_UNITS = (
    (300, "seconds", 1_000_000),
    (18_000, "minutes", 60_000_000),
    (float("inf"), "hours", 3_600_000_000),
)


def draw(played: dict[str, Played], path: Path, *, what: str = "GPUs", each: int = 1) -> None:
    """Waits and use over time, as a picture. ``each``: so much of the measured amounts is one of ``what``."""
    if path.suffix not in (".png", ".svg"):
        raise InvalidInput(
            f"--plot {str(path)!r} is no picture", next_step="a name that ends in .png or .svg"
        )
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise StartupError(
            f"this installation cannot draw: it lacks {error.name}", next_step="pip install 'moorage[plot]'"
        ) from error

    # A fixed salt and no date: the same numbers give the same file.
    with rc_context({"svg.hashsalt": "moorage"}):
        figure = Figure(figsize=(11, 4), layout="constrained")
        waits, use = figure.subplots(1, 2)
        longest = max((one.busy[-1][0] - one.busy[0][0] for one in played.values() if one.busy), default=0)
        unit, micros = next((name, length) for most, name, length in _UNITS if longest / 1_000_000 <= most)
        for name, one in played.items():
            _draw_one(name, one, (waits, use), micros, each)
        waits.set(xlabel=f"wait ({unit})", ylabel="share of jobs that waited longer", yscale="log")
        use.set(xlabel=f"{unit} since the trace began", ylabel=f"{what} in use, on average", ylim=(0, None))
        waits.legend()
        figure.savefig(path, dpi=90, metadata={"Date": None} if path.suffix == ".svg" else None)


def _draw_one(name: str, played: Played, axes: tuple[Axes, Axes], unit: int, each: int) -> None:
    from moorage.simulator.scheduler.statistics import in_use

    if not played.busy:
        return
    waits, use = axes
    started = sorted(o.started - o.job.at for o in played.outcomes if o.started is not None)
    rest = [1 - number / len(started) for number in range(len(started))]
    waits.step([wait / unit for wait in started], rest, label=name, where="post")
    begin, end = played.busy[0][0], played.busy[-1][0]
    edges = [begin + (end - begin) * number // _WINDOWS for number in range(_WINDOWS + 1)]
    means = [in_use(played, edges[n], edges[n + 1]) * played.floor.total / each for n in range(_WINDOWS)]
    use.step([(at - edges[0]) / unit for at in edges[:-1]], means, label=name, where="post")
