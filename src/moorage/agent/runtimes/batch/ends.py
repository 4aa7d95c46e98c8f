"""End of a job's program, as its launcher saw it. Pure."""

from __future__ import annotations

SIGTERM = 15


def program_end(code: int | None, terminated: bool) -> tuple[int | None, str]:
    """The exit code that counts, and a detail. ``terminated``: the job had got SIGTERM before, and
    not for its walltime. A program that then exits with 0 has been ended, such as by scancel: it
    may not have finished, so that is no success."""
    if terminated and code == 0:
        return -SIGTERM, "its job was asked to end, and it exited with 0"
    return code, ""
