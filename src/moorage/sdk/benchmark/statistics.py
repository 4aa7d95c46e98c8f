"""Statistics of a benchmark, named as in ``vllm bench serve``. Pure.

ttft: time to first token. tpot: time per output token of a request, without the first. itl:
inter-token latency, each gap between two pieces of text. e2el: end-to-end latency. Latencies are
measured from the time the request was due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

from moorage.sdk.benchmark.requests import Measured

METRICS = ("ttft", "tpot", "itl", "e2el")
_PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Distribution:
    """In milliseconds."""

    mean: float
    std: float
    percentiles: dict[int, float]
    largest: float

    @staticmethod
    def of(values_s: Sequence[float]) -> Distribution | None:
        """None without values."""
        if not values_s:
            return None
        values = sorted(1000 * value for value in values_s)
        mean = sum(values) / len(values)
        variance = sum((value - mean) ** 2 for value in values) / len(values)
        return Distribution(
            mean, sqrt(variance), {p: percentile(values, p) for p in _PERCENTILES}, values[-1]
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """``errors``: failed requests by cause, with the server's message. ``send_delay``: how long
    requests waited in the generator after they were due. ``tokens_are_stated``: the server reported
    token counts; otherwise each piece of text counts as one token."""

    duration_s: float
    completed: int
    failed: int
    errors: dict[str, int]
    tokens_in: int
    tokens_out: int
    max_concurrent: int
    tokens_are_stated: bool
    ttft: Distribution | None
    tpot: Distribution | None
    itl: Distribution | None
    e2el: Distribution | None
    send_delay: Distribution | None

    def as_json(self) -> dict[str, Any]:
        """The statistics as a flat dict, with vLLM's names."""
        rate = 1 / self.duration_s if self.duration_s else 0.0
        shown: dict[str, Any] = {
            "duration": self.duration_s,
            "completed": self.completed,
            "failed": self.failed,
            "errors": self.errors,
            "total_input_tokens": self.tokens_in,
            "total_output_tokens": self.tokens_out,
            "tokens_are_stated": self.tokens_are_stated,
            "request_throughput": self.completed * rate,
            "output_throughput": self.tokens_out * rate,
            "total_token_throughput": (self.tokens_in + self.tokens_out) * rate,
            "max_concurrent_requests": self.max_concurrent,
        }
        for name in (*METRICS, "send_delay"):
            found: Distribution | None = getattr(self, name)
            if found is not None:
                shown |= {f"mean_{name}_ms": found.mean, f"median_{name}_ms": found.percentiles[50]}
                shown |= {f"std_{name}_ms": found.std, f"max_{name}_ms": found.largest}
                shown |= {f"p{p}_{name}_ms": value for p, value in found.percentiles.items()}

        return shown


def summarize(measured: Sequence[Measured], duration_s: float, max_concurrent: int) -> Summary:
    """Failed requests are counted only as errors."""
    good = [request for request in measured if not request.error]
    first = [request for request in good if request.token_times]
    gaps = [
        later - earlier
        for request in first
        for earlier, later in zip(request.token_times, request.token_times[1:], strict=False)
    ]

    return Summary(
        duration_s=duration_s,
        completed=len(good),
        failed=len(measured) - len(good),
        errors=_errors([request for request in measured if request.error]),
        tokens_in=sum(request.tokens_in for request in good),
        tokens_out=sum(request.tokens_out for request in good),
        max_concurrent=max_concurrent,
        tokens_are_stated=all(request.stated for request in good),
        ttft=Distribution.of([request.token_times[0] - request.due_at for request in first]),
        tpot=Distribution.of(
            [
                (request.token_times[-1] - request.token_times[0]) / (request.tokens_out - 1)
                for request in first
                if request.tokens_out > 1
            ]
        ),
        itl=Distribution.of(gaps),
        e2el=Distribution.of([request.ended_at - request.due_at for request in good]),
        send_delay=Distribution.of([request.sent_at - request.due_at for request in measured]),
    )


def percentile(ordered: Sequence[float], p: float) -> float:
    """The percentile of ascending values, linearly interpolated as in numpy."""
    position = (len(ordered) - 1) * p / 100
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def _errors(failed: Sequence[Measured]) -> dict[str, int]:
    """Failed requests by cause, most frequent first, each with its most frequent message. Messages
    of one cause can differ, for example in a length or an id."""
    causes = Counter(request.error for request in failed)
    found = {}
    for cause, count in causes.most_common():
        failures = Counter(request.failure for request in failed if request.error == cause)
        found[failures.most_common(1)[0][0]] = count
    return found
