"""Moorage schedules models and jobs on GPUs and routes requests to models."""

__version__ = "0.1.0"


def progress(
    fraction: float | None = None,
    *,
    step: int | None = None,
    of: int | None = None,
    message: str = "",
) -> None:
    """Report how far this program is: a ``fraction`` from 0 to 1, or ``step`` number so many ``of``
    all.

    Outside of a session it does nothing, and it never raises. An invalid value, such as a fraction
    of 1.4, is not shown; `moorage describe` says so."""
    from moorage.common.progress import report

    report(fraction, step, of, message)


def reloaded(success: bool = True, *, message: str = "") -> None:
    """Acknowledge that this program has read its settings again, or say with ``message`` why it has
    not. For sessions whose `reload` is acknowledged by progress; outside of a session it does
    nothing."""
    from moorage.common.progress import acknowledge

    acknowledge(success, message)
