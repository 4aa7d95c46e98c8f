"""``moorage scheduler simulate``: simulates policies on synthetic jobs or on jobs from a file.
Needs no manager."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import Cli, command
from moorage.common.model.errors import InvalidInput
from moorage.server.commands.scheduler.comparison import print_comparison, save_plot
from moorage.server.commands.scheduler.group import scheduler
from moorage.server.process import needs_extra

if TYPE_CHECKING:
    from moorage.simulator.scheduler.jobs import TraceJob


@command(scheduler)
def simulate(
    cli: Cli,
    trace: Annotated[
        str,
        typer.Option(
            help="uniform, mixed, bursty, heavy-user, stream, or a file of jobs, FILE.jsonl."
        ),
    ] = "mixed",
    policy: Annotated[
        str, typer.Option(help="Separated by commas: strict, skip, greedy, backfill, lifo, drf.")
    ] = "strict,skip,backfill",
    agents: Annotated[int, typer.Option(min=1, max=10_000, help="Number of agents.")] = 16,
    gpus: Annotated[int, typer.Option(min=1, max=1024, help="GPUs per agent.")] = 8,
    jobs: Annotated[int, typer.Option(min=1, max=100_000, help="Number of synthetic jobs.")] = 1000,
    load: Annotated[
        float,
        typer.Option(
            min=0.01, max=100, help="Requested GPU time as a share of all GPU time; 1 is all of it."
        ),
    ] = 0.9,
    estimates: Annotated[
        str, typer.Option(help="Run time limits of the jobs: exact, padded (1 to 4 times) or none.")
    ] = "exact",
    seed: Annotated[int, typer.Option(help="Random seed of the synthetic jobs.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(help="Save a plot of waits and utilization as .png or .svg.")
    ] = None,
) -> None:
    """Compare policies on simulated jobs, in virtual time, with the manager's own planner.

    \b
    Examples:
      moorage scheduler simulate --trace mixed --policy strict,skip,backfill --plot waits.png
      moorage scheduler simulate --trace jobs.jsonl --policy backfill,drf --agents 4
    A line of the file: {"at_s": 0, "gpus": 2, "run_s": 60, "user": "ann", "limit_s": 90}
    """
    with needs_extra("manager"):
        from moorage.simulator.scheduler import POLICIES, Fleet, generate_jobs, summarize
        from moorage.simulator.scheduler import simulate as simulate_trace
        from moorage.simulator.scheduler.trace import trace_of_jobs

    names = [name.strip() for name in policy.split(",") if name.strip()]
    unknown = [name for name in names if name not in POLICIES]
    if unknown or not names:
        name = unknown[0] if unknown else policy
        raise InvalidInput(f"unknown --policy {name!r}", next_step=f"use {', '.join(POLICIES)}")

    fleet = Fleet(agents, gpus)
    if trace.endswith(".jsonl"):
        job_list = _read(Path(trace))
    else:
        job_list = generate_jobs(
            trace, jobs, gpus=fleet.total_gpus, load=load, estimates=estimates, rng=Random(seed)
        )

    simulated = trace_of_jobs(job_list, fleet)
    results = {name: simulate_trace(simulated, POLICIES[name]) for name in names}
    statistics = {name: summarize(result) for name, result in results.items()}
    if plot is not None:
        save_plot(results, plot, "GPUs")

    if cli.json:
        policies = {name: asdict(each) for name, each in statistics.items()}
        cli.print_json({"jobs": len(job_list), "policies": policies})
        return

    print_comparison(cli, statistics, last_column="MAKESPAN")
    if unstarted := max(each.unstarted for each in statistics.values()):
        cli.note(
            f"{unstarted} jobs never start: they need more than {agents} agents of {gpus} GPUs have"
        )


def _read(path: Path) -> tuple[TraceJob, ...]:
    from moorage.simulator.scheduler import read_jobs

    try:
        with path.open(encoding="utf-8") as file:
            return read_jobs(file)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read --trace {str(path)!r}: {error}") from error
