"""Options of the commands that show load over time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from moorage.cli import times

From = Annotated[
    str,
    typer.Option("--from", help="Start of the period: a time like 2026-05-04T13:00, or 6h (ago)."),
]
To = Annotated[
    str | None, typer.Option("--to", help="End of the period, written like --from. Default: now.")
]
StepName = Annotated[
    str | None,
    typer.Option(
        "--step",
        help="minute (kept for 2 days), 5-minutes, hour (90 days) or day (ten years). Default: the "
        "shortest suitable step.",
    ),
]


def read_period(now: datetime, begin: str, end: str | None) -> tuple[datetime, datetime]:
    """Raises ``InvalidInput``."""
    until = now if end is None else times.past(end, now, "--to")
    return times.past(begin, now, "--from"), until
