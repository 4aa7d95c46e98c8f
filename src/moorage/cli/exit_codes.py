"""Exit codes of the command line. A cause has the same code in every command. Pure."""

from __future__ import annotations

import re

from moorage.common.model.code_runs import RunStatus
from moorage.common.model.exit_codes import shell_exit_code
from moorage.common.model.reasons import Reason

FAILURE = 1
USAGE = 2
NOT_FOUND = 3
AUTH = 4
TIMEOUT = 124
INTERRUPTED = 130
# As in shells, for a program that cannot be executed and a program that does not exist.
NOT_EXECUTABLE = 126
NO_PROGRAM = 127

# Messages from the runtimes about a program that did not start. They name the program or say "the
# program", because other failures to create a kernel also mention missing files.
_REFUSALS = (
    (r"cannot run (the program|['\"].*): No such file or directory", NO_PROGRAM),
    (r"cannot run (the program|['\"].*): (Permission denied|Exec format error)", NOT_EXECUTABLE),
    (r"exec: .*: (executable file not found|.*no such file or directory)", NO_PROGRAM),
    (r"exec: .*: (permission denied|exec format error)", NOT_EXECUTABLE),
)


def of_failure(reason: Reason, detail: str, code: int | None = None) -> int:
    """The exit code for a session that failed. ``code``: the exit code of its program, if known."""
    if reason is Reason.TIMEOUT:
        return TIMEOUT
    if reason is Reason.CREATE_FAILED:
        for pattern, refusal in _REFUSALS:
            if re.search(pattern, detail):
                return refusal
    return shell_exit_code(code) or FAILURE


def of_code(status: RunStatus, code: int | None) -> int:
    """The exit code for code in a session that ended with this status."""
    return TIMEOUT if status is RunStatus.EXEC_TIMEOUT else shell_exit_code(code)
