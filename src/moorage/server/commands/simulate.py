"""``moorage simulate``: many played agents in one process."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import MutableMapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import structlog
import typer

from moorage.cli import app
from moorage.common.aio import gc
from moorage.common.aio.clock import Clock
from moorage.common.model.errors import ConfigError
from moorage.common.model.slots import parse_amount
from moorage.server.bootstrap import Bootstrap, bootstrap
from moorage.server.commands.options import (
    ConfigFile,
    HomeDir,
    Overrides,
    load_settings,
    run_and_exit,
)
from moorage.server.process import missing_extra

if TYPE_CHECKING:
    from moorage.simulator.fleet import Cast, Script, Simulation

_LINE_EVERY_S = 5.0
_SAME_AGAIN_S = 30.0


def _share(help: str) -> Any:
    return typer.Option(min=0, max=1, metavar="P", show_default="as --faults", help=help)


def _every(help: str) -> Any:
    return typer.Option(min=0, metavar="SECONDS", show_default="as --faults", help=help)


@app.command()
def simulate(
    agents: Annotated[int, typer.Option(min=1, max=100_000, help="How many agents.")] = 10,
    gpus: Annotated[int, typer.Option(min=0, max=1024, help="GPUs of each.")] = 8,
    model: Annotated[str, typer.Option(help="What the GPUs are.")] = "H100",
    cpu: Annotated[str | None, typer.Option(help="CPUs of each; none: 256.")] = None,
    mem: Annotated[str | None, typer.Option(help="Memory of each; none: 2048GiB.")] = None,
    start_ms: Annotated[str, typer.Option(metavar="LOW..HIGH", help="Until a kernel is ready.")] = "5..50",
    run_s: Annotated[str, typer.Option(metavar="LOW..HIGH", help="How long a batch kernel runs.")] = "1..10",
    forever: Annotated[bool, typer.Option("--forever", help="Batch kernels run until stopped, too.")] = False,
    stop_ms: Annotated[str, typer.Option(metavar="LOW..HIGH", help="How long a stop takes.")] = "1..20",
    faults: Annotated[str, typer.Option(help="none, light or heavy; the options below change it.")] = "none",
    fail_start: Annotated[float | None, _share("Of kernels: it cannot be started.")] = None,
    fail_run: Annotated[float | None, _share("Of kernels: it ends with 1, or crashes.")] = None,
    hang_stop: Annotated[float | None, _share("Of stops: only the kill ends it.")] = None,
    lose_report: Annotated[float | None, _share("Of reports: it repeats the one before.")] = None,
    disconnect_every: Annotated[float | None, _every("One agent is cut off; 0: never.")] = None,
    die_every: Annotated[float | None, _every("One agent dies and comes back; 0: never.")] = None,
    reboot: Annotated[float | None, _share("Of deaths: its kernels are gone, too.")] = None,
    lose_ledger: Annotated[float | None, _share("Of the others: it forgot its kernels.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed and orders: the same fates.")] = 0,
    serve: Annotated[bool, typer.Option("--serve", help="Answer requests, in one word.")] = False,
    for_s: Annotated[float | None, typer.Option("--for", metavar="SECONDS", help="Then stop.")] = None,
    ramp_s: Annotated[float | None, typer.Option(help="Over which the agents come; none: 2 ms each.")] = None,
    settle_ms: Annotated[float, typer.Option(min=0, help="How long news wait for company.")] = 10,
    runtimes: Annotated[str, typer.Option(help="Offered, with commas.")] = "process,fake",
    engines: Annotated[str, typer.Option(help="Offered, with commas.")] = "custom,llamacpp,vllm",
    prefix: Annotated[str, typer.Option(help="Of the agents' names.")] = "sim-",
    output: Annotated[str, typer.Option("--output", "-o", help="The summary: text or json.")] = "text",
    manager: Annotated[str | None, typer.Option(help="The manager's gRPC address.")] = None,
    resource_group: Annotated[str | None, typer.Option(help="The group that they belong to.")] = None,
    link_token: Annotated[str | None, typer.Option(help="The manager's; better in a file.")] = None,
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
) -> None:
    """Play many agents: real links to the manager, kernels that are only scripted. For tests and benchmarks.

    A session may say what its kernels shall do, in its env: SIM_START_MS, SIM_RUN_S (or "forever"), SIM_EXIT,
    SIM_STOP_MS, SIM_FAIL_START=1. Progress goes to stderr.
    """
    given = dict(locals())
    loaded = load_settings(
        config, home, sets,
        agent__manager=manager, agent__resource_group=resource_group, common__link_token=link_token,
    )  # fmt: skip
    start = bootstrap(loaded)
    if output not in ("text", "json"):
        raise ConfigError(f"--output {output!r} is not allowed", next_step="use text or json")
    _say_once(start.clock)
    run_and_exit(_play(_simulation(start, given), start, for_s, output))


def _simulation(start: Bootstrap, given: dict[str, Any]) -> Simulation:
    try:
        from moorage.simulator.fleet import PRESETS, Simulation
    except ImportError as error:
        raise missing_extra("agent", error) from error

    if (preset := PRESETS.get(given["faults"])) is None:
        raise ConfigError(
            f"--faults {given['faults']!r} is not allowed", next_step=f"use {', '.join(PRESETS)}"
        )
    named = {
        "fail_start": "fail_start", "fail_run": "fail_run", "hang_stop": "hang_stop",
        "lose_report": "lose_report", "disconnect_every": "disconnect_every_s", "die_every": "die_every_s",
        "reboot": "reboot", "lose_ledger": "lose_ledger",
    }  # fmt: skip
    own = {field: given[option] for option, field in named.items() if given[option] is not None}
    agent = start.loaded.settings.agent
    return Simulation(
        _cast(given), _script(given), replace(preset, **own), agent, clock=start.clock, token=start.token
    )


def _cast(given: dict[str, Any]) -> Cast:
    from moorage.simulator.fleet import Cast

    agents, ramp_s = given["agents"], given["ramp_s"]
    return Cast(
        agents=agents,
        gpus=given["gpus"],
        model=given["model"],
        cpu=None if given["cpu"] is None else parse_amount("cpu", given["cpu"]),
        mem=None if given["mem"] is None else parse_amount("mem", given["mem"]),
        prefix=given["prefix"],
        runtimes=_words(given["runtimes"], "--runtimes"),
        engines=_words(given["engines"], "--engines"),
        seed=given["seed"],
        ramp_s=agents * 0.002 if ramp_s is None else ramp_s,
        settle_s=given["settle_ms"] / 1000,
        serve=given["serve"],
    )


def _script(given: dict[str, Any]) -> Script:
    from moorage.simulator.fleet import Script, parse_range

    return Script(
        start_s=parse_range(given["start_ms"], 0.001, "--start-ms"),
        run_s=None if given["forever"] else parse_range(given["run_s"], 1, "--run-s"),
        stop_s=parse_range(given["stop_ms"], 0.001, "--stop-ms"),
    )


def _words(text: str, option: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise ConfigError(f"{option} {text!r} names none", next_step="write names with commas between them")
    return words


async def _play(simulation: Simulation, start: Bootstrap, for_s: float | None, output: str) -> int:
    from moorage.server.process import shutdown_event
    from moorage.simulator.fleet import Progress, summary

    clock, tally, stopped = start.clock, simulation.tally, shutdown_event()
    begun = clock.monotonic()
    async with simulation:
        gc.freeze_startup_objects()
        progress = Progress(tally, begun)
        while not stopped.is_set():
            left_s = _LINE_EVERY_S if for_s is None else begun + for_s - clock.monotonic()
            if left_s < 0.01:
                break
            try:
                async with asyncio.timeout(min(left_s, _LINE_EVERY_S)):
                    await stopped.wait()
            except TimeoutError:
                if left_s >= _LINE_EVERY_S:
                    print(progress.line(clock.monotonic()), file=sys.stderr, flush=True)
        passed = clock.monotonic() - begun
        done = tally.as_dict()
        text = summary(tally, passed)
    print(json.dumps({"seconds": round(passed, 3)} | done) if output == "json" else text, flush=True)
    return 0


def _say_once(clock: Clock) -> None:
    """A thousand agents meet the same trouble at the same moment: it is said once in a while."""
    said: dict[tuple[object, object], float] = {}

    def once(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        now, what = clock.monotonic(), (event.get("event"), event.get("why"))
        if now - said.get(what, -_SAME_AGAIN_S) < _SAME_AGAIN_S:
            raise structlog.DropEvent
        said[what] = now
        return event

    structlog.configure(processors=[once, *structlog.get_config()["processors"]])
