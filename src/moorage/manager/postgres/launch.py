"""Launcher for the Postgres server: drops privileges, ties the process to its parent, then executes
a program. It is run by its path and never imported.

    python -I -S launch.py PARENT_PID UID GID PROGRAM [ARGUMENT ...]

It is a separate program because Python code between fork and exec is not safe in a process with
threads. The order matters: setuid clears the parent-death signal. UID -1 keeps the current user.
See docs/decisions/0002-embedded-postgres.md.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, uid, gid = (int(argument) for argument in sys.argv[1:4])
    program = sys.argv[4:]
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)

    # SIGINT is Postgres' fast shutdown: no new work, open transactions rolled back, data written.
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGINT), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # the parent died before prctl
        sys.exit(1)

    os.execv(program[0], program)


if __name__ == "__main__":
    main()
