"""``moorage simulate``: a fleet of simulated agents in one process."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import MutableMapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import structlog
import typer

from moorage.cli import app, duration_option
from moorage.common.aio import gc
from moorage.common.aio.clock import Clock
from moorage.common.model.errors import ConfigError
from moorage.common.model.slots import parse_amount
from moorage.server.bootstrap import Bootstrap, bootstrap
from moorage.server.commands.options import (
    ConfigFile,
    Flag,
    HomeDir,
    Overrides,
    load_settings,
    run_and_exit,
)
from moorage.server.etcd import locate_managers
from moorage.server.process import needs_extra

if TYPE_CHECKING:
    from moorage.simulator.fleet import FleetConfig, FleetSimulation, KernelProfile

_PROGRESS_EVERY_S = 5.0
_REPEAT_LOG_AFTER_S = 30.0


def _probability(help: str) -> Any:
    return typer.Option(min=0, max=1, metavar="P", show_default="as --faults", help=help)


def _range(help: str) -> Any:
    return typer.Option(metavar="LOW..HIGH", help=help)


def _interval(help: str) -> Any:
    return duration_option(f"{help} 0s: never.", show_default="as --faults")


@app.command()
def simulate(
    agents: Annotated[int, typer.Option(min=1, max=100_000, help="Number of agents.")] = 10,
    gpus: Annotated[int, typer.Option(min=0, max=1024, help="GPUs per agent.")] = 8,
    model: Annotated[str, typer.Option(help="GPU model.")] = "H100",
    cpu: Annotated[str | None, typer.Option(help="CPUs per agent.", show_default="256")] = None,
    mem: Annotated[
        str | None, typer.Option(help="Memory per agent.", show_default="2048GiB")
    ] = None,
    start_time: Annotated[str, _range("Time until a kernel runs.")] = "5ms..50ms",
    run_time: Annotated[str, _range("Run time of a batch kernel.")] = "1s..10s",
    forever: Annotated[
        bool, typer.Option("--forever", help="Also run batch kernels until they are stopped.")
    ] = False,
    stop_time: Annotated[str, _range("Time from stop to exit.")] = "1ms..20ms",
    faults: Annotated[
        str, typer.Option(help="none, light or heavy; the options below override it.")
    ] = "none",
    fail_start: Annotated[float | None, _probability("A kernel cannot be started.")] = None,
    fail_run: Annotated[float | None, _probability("A kernel exits with 1, or crashes.")] = None,
    hang_stop: Annotated[float | None, _probability("A kernel ignores SIGTERM.")] = None,
    lose_report: Annotated[float | None, _probability("A report repeats the previous one.")] = None,
    disconnect_every: Annotated[float | None, _interval("An agent loses its connection.")] = None,
    die_every: Annotated[float | None, _interval("An agent dies and restarts.")] = None,
    reboot: Annotated[float | None, _probability("A death ends the node's kernels.")] = None,
    lose_checkpoint: Annotated[
        float | None, _probability("Any other death loses the checkpoint.")
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Random seed: the same orders have the same outcomes.")
    ] = 0,
    serve: Annotated[
        bool, typer.Option("--serve", help="Answer model requests with one word.")
    ] = False,
    for_s: Annotated[float | None, duration_option("Stop after this long.", "--for")] = None,
    ramp: Annotated[
        float | None,
        duration_option("Time over which the agents connect.", show_default="2ms per agent"),
    ] = None,
    coalesce: Annotated[
        float, duration_option("Coalescing window for reports.", show_default="10ms")
    ] = 0.01,
    runtimes: Annotated[str, typer.Option(help="Runtimes, separated by commas.")] = "process,fake",
    engines: Annotated[
        str, typer.Option(help="Engines, separated by commas.")
    ] = "custom,llamacpp,vllm",
    prefix: Annotated[str, typer.Option(help="Prefix of the agents' names.")] = "sim-",
    output: Annotated[
        str, typer.Option("--output", "-o", help="Summary as text or json.")
    ] = "text",
    manager: Annotated[str | None, typer.Option(help="gRPC address of the manager.")] = None,
    resource_group: Annotated[
        str | None, typer.Option(help="Resource group of the agents.")
    ] = None,
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
) -> None:
    """Run simulated agents with real links to the manager and scripted kernels, for tests and
    benchmarks.

    A session's environment can set the behavior of its kernels: SIM_START_MS, SIM_RUN_S (or
    "forever"), SIM_EXIT, SIM_STOP_MS, SIM_FAIL_START=1. Progress is written to stderr, the summary
    to stdout.
    """
    options = dict(locals())
    loaded = load_settings(
        config,
        home,
        sets,
        Flag("--manager", "agent.manager", manager),
        Flag("--resource-group", "agent.resource_group", resource_group),
    )
    start = bootstrap(loaded)
    if output not in ("text", "json"):
        raise ConfigError(f"--output {output!r} is not allowed", next_step="use text or json")

    _limit_repeated_logs(start.clock)
    run_and_exit(_run_until_stopped(_simulation(start, options), start, for_s, output))


def _simulation(start: Bootstrap, options: dict[str, Any]) -> FleetSimulation:
    with needs_extra("agent"):
        from moorage.simulator.fleet import PRESETS, FleetSimulation

    if (preset := PRESETS.get(options["faults"])) is None:
        raise ConfigError(
            f"--faults {options['faults']!r} is not allowed", next_step=f"use {', '.join(PRESETS)}"
        )

    fields = {
        "fail_start": "fail_start",
        "fail_run": "fail_run",
        "hang_stop": "hang_stop",
        "lose_report": "lose_report",
        "disconnect_every": "disconnect_every_s",
        "die_every": "die_every_s",
        "reboot": "reboot",
        "lose_checkpoint": "lose_checkpoint",
    }
    overrides = {
        field: options[option] for option, field in fields.items() if options[option] is not None
    }
    settings = start.loaded.settings
    common = start.loaded.settings.common
    (agent,), _ = locate_managers((settings.agent,), settings.etcd, start.home, start.clock)

    return FleetSimulation(
        _fleet(options),
        _profile(options),
        replace(preset, **overrides),
        agent,
        clock=start.clock,
        token=start.token,
        home=None if common.link_tls == "off" else common.manager_home or start.home,
    )


def _fleet(options: dict[str, Any]) -> FleetConfig:
    from moorage.simulator.fleet import FleetConfig

    agents = options["agents"]
    ramp_s = options["ramp"]
    return FleetConfig(
        agents=agents,
        gpus=options["gpus"],
        model=options["model"],
        cpu=None if options["cpu"] is None else parse_amount("cpu", options["cpu"]),
        mem=None if options["mem"] is None else parse_amount("mem", options["mem"]),
        prefix=options["prefix"],
        runtimes=_split(options["runtimes"], "--runtimes"),
        engines=_split(options["engines"], "--engines"),
        seed=options["seed"],
        ramp_s=agents * 0.002 if ramp_s is None else ramp_s,
        coalesce_s=options["coalesce"],
        serve=options["serve"],
    )


def _profile(options: dict[str, Any]) -> KernelProfile:
    from moorage.simulator.fleet import KernelProfile, parse_range

    return KernelProfile(
        start_s=parse_range(options["start_time"], "--start-time"),
        run_s=None if options["forever"] else parse_range(options["run_time"], "--run-time"),
        stop_s=parse_range(options["stop_time"], "--stop-time"),
    )


def _split(text: str, option: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ConfigError(
            f"{option} {text!r} is empty", next_step="write names separated by commas"
        )
    return names


async def _run_until_stopped(
    simulation: FleetSimulation, start: Bootstrap, for_s: float | None, output: str
) -> int:
    from moorage.server.process import shutdown_event
    from moorage.simulator.fleet import ProgressLines, summarize

    clock = start.clock
    statistics = simulation.statistics
    stopped = shutdown_event()
    started = clock.monotonic()
    async with simulation:
        gc.freeze_startup_objects()
        progress = ProgressLines(statistics, started)
        while not stopped.is_set():
            remaining_s = (
                _PROGRESS_EVERY_S if for_s is None else started + for_s - clock.monotonic()
            )
            if remaining_s < 0.01:
                break

            try:
                async with asyncio.timeout(min(remaining_s, _PROGRESS_EVERY_S)):
                    await stopped.wait()
            except TimeoutError:
                if remaining_s >= _PROGRESS_EVERY_S:
                    print(progress.line(clock.monotonic()), file=sys.stderr, flush=True)

        seconds = clock.monotonic() - started
        # Summarize before the simulation stops all kernels.
        counters = statistics.as_dict()
        text = summarize(statistics, seconds)

    print(
        json.dumps({"seconds": round(seconds, 3)} | counters) if output == "json" else text,
        flush=True,
    )
    return 0


def _limit_repeated_logs(clock: Clock) -> None:
    """Log events with the same cause at most every 30 s, because a thousand agents may encounter
    that cause at the same moment."""
    logged_at: dict[tuple[object, object], float] = {}

    def drop_repeated(
        logger: Any, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        now = clock.monotonic()
        key = (event.get("event"), event.get("why"))
        if now - logged_at.get(key, -_REPEAT_LOG_AFTER_S) < _REPEAT_LOG_AFTER_S:
            raise structlog.DropEvent
        logged_at[key] = now
        return event

    structlog.configure(processors=[drop_repeated, *structlog.get_config()["processors"]])
