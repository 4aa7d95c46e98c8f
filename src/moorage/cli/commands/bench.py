"""``moorage bench``: a benchmark of a served model under load."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from moorage.cli import parse
from moorage.cli.app import app
from moorage.cli.bench_report import BenchProgress, check_plot, print_summary, save_plot
from moorage.cli.completion import endpoint_names
from moorage.cli.context import Cli, command, duration_option
from moorage.cli.exit_codes import FAILURE, INTERRUPTED
from moorage.common.model.errors import InvalidInput

if TYPE_CHECKING:
    from moorage.sdk.benchmark import BenchmarkTarget, Load, Measured, Prompt, Summary

_APIS = ("chat", "completions")
_CONCURRENCY = 8
_PROMPTS = 100


Model = Annotated[str, typer.Argument(help="A served model.", autocompletion=endpoint_names)]
NumPrompts = Annotated[
    int | None,
    typer.Option(
        min=1, max=10_000_000, help="Requests to send. Default: 100; unlimited with --for."
    ),
]
Duration = Annotated[
    float | None, duration_option("Send requests for this long.", "--for", min_s=0.1)
]
Rate = Annotated[
    float | None,
    typer.Option(
        min=0.001, max=1_000_000, help="Requests per second, independent of the response times."
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        min=1, max=100_000, help="Concurrent requests. Default: 8; unlimited with --request-rate."
    ),
]
Burstiness = Annotated[
    float,
    typer.Option(
        min=0.01,
        max=1000,
        help="Shape of --request-rate: 1 is Poisson, less is bursty, more is even.",
    ),
]
InputLen = Annotated[
    int, typer.Option(min=1, max=1_000_000, help="Approximate length of random prompts in tokens.")
]
OutputLen = Annotated[
    int, typer.Option(min=1, max=1_000_000, help="Maximum length of an answer in tokens.")
]
IgnoreEos = Annotated[
    bool,
    typer.Option(
        "--ignore-eos", help="Make the engine generate all of --output-len (vLLM, llama.cpp)."
    ),
]
Dataset = Annotated[
    Path | None,
    typer.Option(
        help='File with a line {"prompt": …, "max_tokens": …} per request. Default: random prompts.'
    ),
]
ApiName = Annotated[str, typer.Option(help="chat or completions.")]
Warmups = Annotated[
    int, typer.Option(min=0, max=1000, help="Warm-up requests before the measurement.")
]
Seed = Annotated[int, typer.Option(help="Seed of random prompts and arrivals.")]
Plot = Annotated[Path | None, typer.Option(help="Save a plot as .svg or .png.")]


@command(app)
def bench(
    cli: Cli,
    model: Model,
    num_prompts: NumPrompts = None,
    duration: Duration = None,
    request_rate: Rate = None,
    max_concurrency: Concurrency = None,
    burstiness: Burstiness = 1.0,
    input_len: InputLen = 256,
    output_len: OutputLen = 128,
    ignore_eos: IgnoreEos = False,
    dataset: Dataset = None,
    api: ApiName = "chat",
    num_warmups: Warmups = 1,
    seed: Seed = 0,
    plot: Plot = None,
) -> None:
    """Benchmark a served model: time to first token, token rate, throughput, errors.

    With --request-rate, times are measured from when a request was due, even if it had to wait for
    others.

    \b
    Examples:
      moorage bench tiny
      moorage bench tiny --max-concurrency 32 --for 1m --plot tiny.svg
      moorage bench tiny --request-rate 5 --input-len 1000 --output-len 200 --ignore-eos
      moorage bench tiny --dataset prompts.jsonl -o json | jq .p99_ttft_ms
    """
    from moorage.sdk.benchmark import BenchmarkTarget, Load, random_prompts, read_dataset

    if api not in _APIS:
        raise InvalidInput(f"--api {api!r} is unknown", next_step=f"use one of: {', '.join(_APIS)}")

    check_plot(plot)
    generator = random.Random(seed)
    prompts: Iterator[Prompt] = random_prompts(generator, input_len, output_len)
    if dataset is not None:
        prompts = cycle(read_dataset(_lines(dataset), output_len))

    at = cli.connection
    extra = {"ignore_eos": True} if ignore_eos else {}
    target = BenchmarkTarget(
        at.openai_url, at.key, model=model, api=cast(Any, api), extra=extra, ca_file=at.ca_file
    )
    load = Load(
        request_rate,
        max_concurrency if request_rate is not None else max_concurrency or _CONCURRENCY,
        requests=num_prompts if num_prompts is not None or duration is not None else _PROMPTS,
        duration_s=duration,
        burstiness=burstiness,
    )
    try:
        measured, summary = cli.run(
            lambda _: _measure(
                cli, target, prompts=prompts, load=load, warmups=num_warmups, generator=generator
            )
        )
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None

    if plot is not None:
        save_plot(measured, summary, plot, model)
        cli.note(f"plot saved as {plot}")

    if cli.json:
        cli.print_json({"model": model, "api": api, "load": _shown(load), **summary.as_json()})
    else:
        print_summary(cli.out, model, summary)

    if not summary.completed:
        raise typer.Exit(FAILURE)


async def _measure(
    cli: Cli,
    target: BenchmarkTarget,
    prompts: Iterator[Prompt],
    load: Load,
    *,
    warmups: int,
    generator: random.Random,
) -> tuple[list[Measured], Summary]:
    from moorage.sdk.benchmark import Load, run, summarize

    if warmups:
        first, _ = await run(
            target,
            prompts,
            Load(max_concurrency=1, requests=warmups),
            clock=cli.clock,
            generator=generator,
        )
        if failed := next((request.failure for request in first if request.error), ""):
            raise InvalidInput(
                f"a first request to {target.url} failed: {failed}",
                next_step="`moorage ps` shows the model's state; `moorage chat` sends it one "
                "prompt",
            )

    with BenchProgress(cli.err, target.model, load) as progress:
        measured, end = await run(
            target, prompts, load, clock=cli.clock, generator=generator, on_progress=progress.show
        )

    return measured, summarize(measured, end.elapsed_s, end.peak)


def _lines(path: Path) -> list[str]:
    try:
        return parse.read_lines(path)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read --dataset {str(path)!r}: {error}") from error


def _shown(load: Load) -> dict[str, Any]:
    return {
        "request_rate": load.request_rate,
        "burstiness": load.burstiness,
        "max_concurrency": load.max_concurrency,
        "num_prompts": load.requests,
        "duration_s": load.duration_s,
    }
