"""Programs' exit codes as shells report them. Pure."""

from __future__ import annotations


def shell_exit_code(code: int | None) -> int:
    """Exit code in a shell: 128 plus the signal's number if ``code`` is a negative signal number.
    None means unknown and becomes 1."""
    if code is None:
        return 1
    return 128 - code if code < 0 else min(code, 255)
