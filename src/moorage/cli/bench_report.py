"""Report of a benchmark: progress while it runs, a table, and a plot."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from moorage.cli.output import print_facts, print_table, printable
from moorage.common.model.durations import format_duration
from moorage.common.model.errors import InvalidInput, StartupError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console

    from moorage.sdk.benchmark import Load, Measured, Summary
    from moorage.sdk.benchmark import Progress as Done

_ROWS = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "inter-token latency",
    "e2el": "end-to-end latency",
}
_COLUMNS = ("MILLISECONDS", "MEAN", "P50", "P90", "P99", "MAX")
# Time between two progress lines if there is no terminal.
_LINE_EVERY_S = 5.0
# A load generator that sends requests this late distorts its own measurement.
_LATE_MS = 20.0


class BenchProgress:
    """Progress of a benchmark: a bar on a terminal, otherwise an occasional line."""

    def __init__(self, err: Console, model: str, load: Load) -> None:
        self._err = err
        self._model = printable(model, one_line=True)
        self._load = load
        self._line_at = _LINE_EVERY_S
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            console=err,
            transient=True,
            disable=not err.is_terminal,
        )
        total = load.duration_s if load.requests is None else load.requests
        self._task = self._bar.add_task(self._model, total=total, text="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def show(self, done: Done) -> None:
        ended = done.completed + done.failed
        elapsed_s = max(done.elapsed_s, 0.001)
        text = (
            f"{ended} answered, {done.failed} failed, {done.running} running, "
            f"{ended / elapsed_s:.1f} requests/s, {done.tokens_out / elapsed_s:.0f} tokens/s"
        )

        if self._err.is_terminal:
            completed = done.elapsed_s if self._load.requests is None else ended
            self._bar.update(self._task, completed=completed, text=text)
        elif done.elapsed_s >= self._line_at:
            self._line_at = done.elapsed_s + _LINE_EVERY_S
            self._err.print(f"{done.elapsed_s:8.2f} s  {self._model}: {text}", soft_wrap=True)


def print_summary(out: Console, model: str, summary: Summary) -> None:
    flat = summary.as_json()
    stated = "" if summary.tokens_are_stated else " (pieces of text: the server reports no tokens)"
    facts = [
        ("model", model),
        (
            "requests",
            f"{summary.completed} completed, {summary.failed} failed, "
            f"in {format_duration(summary.duration_s)}; at most {summary.max_concurrent} at a time",
        ),
        (
            "throughput",
            f"{flat['request_throughput']:.2f} requests/s, "
            f"{flat['output_throughput']:.1f} output tokens/s, "
            f"{flat['total_token_throughput']:.1f} tokens/s",
        ),
        ("tokens", f"{summary.tokens_in} in, {summary.tokens_out} out{stated}"),
    ]
    print_facts(out, facts)
    for error, count in summary.errors.items():
        print_facts(out, [("failed", f"{count} × {printable(error, one_line=True)}")])

    rows = []
    for name, label in _ROWS.items():
        if f"mean_{name}_ms" in flat:
            values = (flat[f"{kind}_{name}_ms"] for kind in ("mean", "p50", "p90", "p99", "max"))
            rows.append([label, *(f"{value:.1f}" for value in values)])

    if rows:
        out.print()
        print_table(out, _COLUMNS, rows)

    delay = summary.send_delay
    if delay is not None and delay.percentiles[99] > _LATE_MS:
        late = f"{delay.percentiles[99]:.0f} ms late at p99; these times include that delay"
        print_facts(out, [("note", f"requests were sent {late}")])


def check_plot(path: Path | None) -> None:
    """Raises ``InvalidInput`` for an unknown format and ``StartupError`` without matplotlib."""
    if path is None:
        return

    if path.suffix not in (".png", ".svg"):
        raise InvalidInput(
            f"--plot {str(path)!r} has an unknown format",
            next_step="use a name that ends in .svg or .png",
        )

    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise StartupError(
            f"this installation cannot plot: {error.name} is missing",
            next_step="pip install 'moorage[plot]'",
        ) from error


def save_plot(measured: list[Measured], summary: Summary, path: Path, model: str) -> None:
    """Plot the distributions of the times, each request over its due time, and the throughput."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # With a fixed salt and no date, the same results produce the same file.
    with rc_context({"svg.hashsalt": "moorage"}):
        figure = Figure(figsize=(11, 7), layout="constrained")
        (shares, requests), (gaps, tokens) = figure.subplots(2, 2)
        good = [request for request in measured if not request.error and request.token_times]
        begin = min((request.due_at for request in measured), default=0.0)
        _steps(shares, "first token", [request.token_times[0] - request.due_at for request in good])
        _steps(shares, "whole answer", [request.ended_at - request.due_at for request in good])
        shares.set(xlabel="seconds since the request was due", ylabel="share of requests")
        _steps(
            gaps,
            "",
            [
                b - a
                for request in good
                for a, b in zip(request.token_times, request.token_times[1:], strict=False)
            ],
        )
        gaps.set(xlabel="seconds between two tokens", ylabel="share of tokens")

        for label, values in (
            (
                "whole answer",
                [(request.due_at - begin, request.ended_at - request.due_at) for request in good],
            ),
            (
                "first token",
                [
                    (request.due_at - begin, request.token_times[0] - request.due_at)
                    for request in good
                ],
            ),
            (
                "failed",
                [
                    (request.due_at - begin, request.ended_at - request.due_at)
                    for request in measured
                    if request.error
                ],
            ),
        ):
            if values:
                requests.plot(*zip(*values, strict=True), ".", label=label, markersize=4)

        requests.set(xlabel="seconds since the start", ylabel="seconds", ylim=(0, None))
        requests.legend()
        _throughput(
            tokens,
            [at - begin for request in good for at in request.token_times],
            summary.duration_s,
        )
        figure.suptitle(model)
        figure.savefig(path, dpi=90, metadata={"Date": None} if path.suffix == ".svg" else None)


def _steps(axes: Axes, label: str, values: list[float]) -> None:
    ordered = sorted(values)
    shares = [(number + 1) / len(ordered) for number in range(len(ordered))]
    axes.step([0.0, *ordered], [0.0, *shares], label=label, where="post")
    axes.set(ylim=(0, 1))
    if label:
        axes.legend()


def _throughput(axes: Axes, times: list[float], duration_s: float) -> None:
    width = max(duration_s / 50, 0.001)
    counts = [0] * 51
    for at in times:
        counts[min(50, max(0, int(at / width)))] += 1
    axes.step(
        [number * width for number in range(51)], [count / width for count in counts], where="post"
    )
    axes.set(xlabel="seconds since the start", ylabel="pieces of text per second", ylim=(0, None))
