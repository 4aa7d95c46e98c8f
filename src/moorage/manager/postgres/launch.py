"""Become another user, ask to die with the parent, then become the program. Run by its path, never imported.

    python -I -S launch.py PARENT_PID UID GID PROGRAM [ARGUMENT ...]

It is a program because Python code between fork and exec is not safe beside threads, and because the
kernel forgets the wish to die with the parent on setuid: the order matters. UID -1: stay who we are.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, uid, gid = (int(word) for word in sys.argv[1:4])
    program = sys.argv[4:]
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    # SIGINT is Postgres' fast shutdown: no new work, open transactions rolled back, all of it written.
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGINT), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it died before we could ask
        sys.exit(1)
    os.execv(program[0], program)


if __name__ == "__main__":
    main()
