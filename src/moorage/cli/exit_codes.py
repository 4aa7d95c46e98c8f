"""Exit codes of the command line: one for one cause, whichever verb meets it. Pure."""

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
# As of shells: a program that cannot be executed, and one that is not there.
NOT_EXECUTABLE = 126
NO_PROGRAM = 127

# What the runtimes report of a program that did not start. They name the program, or say "the
# program"; other failures to create a kernel name a file that is missing, too.
_REFUSALS = (
    (r"cannot run (the program|['\"].*): No such file or directory", NO_PROGRAM),
    (r"cannot run (the program|['\"].*): (Permission denied|Exec format error)", NOT_EXECUTABLE),
    (r"exec: .*: (executable file not found|.*no such file or directory)", NO_PROGRAM),
    (r"exec: .*: (permission denied|exec format error)", NOT_EXECUTABLE),
)


def of_failure(reason: Reason, detail: str, code: int | None = None) -> int:
    """Of a session that failed. ``code``: what its program exited with, where that is known."""
    if reason is Reason.TIMEOUT:
        return TIMEOUT
    if reason is Reason.CREATE_FAILED:
        for pattern, refusal in _REFUSALS:
            if re.search(pattern, detail):
                return refusal
    return shell_exit_code(code) or FAILURE


def of_code(status: RunStatus, code: int | None) -> int:
    """Of code in a session that has ended with this status."""
    return TIMEOUT if status is RunStatus.EXEC_TIMEOUT else shell_exit_code(code)
