"""Exit codes of programs as shells report them. Pure."""

from __future__ import annotations


def shell_exit_code(code: int | None) -> int:
    """128 plus the number for a signal, which ``code`` has as a negative number. None, unknown:
    1."""
    if code is None:
        return 1
    return 128 - code if code < 0 else min(code, 255)
