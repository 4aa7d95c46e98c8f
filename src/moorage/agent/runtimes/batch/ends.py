"""Ends of job programs, as reported by their launchers. Pure."""

from __future__ import annotations

SIGTERM = 15


def program_end(code: int | None, terminated: bool) -> tuple[int | None, str]:
    """The effective exit code, and a detail. ``terminated``: the job had received SIGTERM before,
    but not for its walltime. A program that then exits with 0 was stopped, for example by scancel.
    It may not have finished, so this is not a success."""
    if terminated and code == 0:
        return -SIGTERM, "its job was asked to end, and then it exited with 0"
    return code, ""
