"""Text about the queueing and loading times of a site's jobs."""

from __future__ import annotations

from moorage.common.model.durations import format_duration
from moorage.common.views.resources import StartTimes


def start_text(times: StartTimes) -> str:
    waits, loads = (
        " and ".join(format_duration(round(s)) for s in pair)
        for pair in (
            (times.queue_wait_p50_s, times.queue_wait_p90_s),
            (times.load_p50_s, times.load_p90_s),
        )
    )
    return (
        f"p50 and p90 of the latest {times.starts}: {waits} in the queue, then {loads} until ready"
    )
