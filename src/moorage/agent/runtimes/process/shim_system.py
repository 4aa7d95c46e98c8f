"""Processes, signals and small files on the node, for the shim (``shim.py``).

The C modules are imported directly, because importing ``ctypes`` and ``signal`` takes 4 ms and 5
ms.
"""

from __future__ import annotations

import _ctypes
import _signal as signal  # type: ignore[import-not-found]
import errno
import os

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
_prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]


def prctl_set(option: int, value: int | bytes) -> None:
    """Call prctl(2). It fails only for unknown options, and Linux has supported these since 3.4."""
    _ctypes.call_function(_prctl, (option, value, 0, 0, 0))


# More than ``replace`` ever writes: one block of most file systems.
RESERVED_BYTES = 4096


def reserve(path: str) -> None:
    """Reserve the space that ``replace`` will need later, when the disk may be full. Raises
    ``OSError``."""
    fd = os.open(f"{path}.reserved", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        if os.write(fd, bytes(RESERVED_BYTES)) < RESERVED_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(fd)


def replace(path: str, text: str) -> None:
    """Replace a file: write it into its reserved space, if any, and then rename it."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    temporary = f"{path}.reserved"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT, 0o600)
    written = os.write(fd, text.encode())
    os.ftruncate(fd, written)
    os.close(fd)
    os.replace(temporary, path)


def exec_program(argv: list[str], env: dict[str, str]) -> None:
    """Execute a program, like ``os.execvpe``, which first imports ``warnings`` and takes 0.8 ms
    longer."""
    name = argv[0]
    first_error = None
    if "/" in name:
        os.execve(name, argv, env)

    for folder in env.get("PATH", os.defpath).split(":"):
        try:
            os.execve(os.path.join(folder, name), argv, env)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            first_error = first_error or error

    raise first_error or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def read(path: str) -> str:
    """The contents of a file; empty if unreadable. ``open`` is not used, because it takes several
    times as long."""
    pieces = []
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return ""

    try:
        while piece := os.read(fd, 65_536):
            pieces.append(piece)
    except OSError:
        pass  # a file in /proc whose process has exited

    os.close(fd)
    return os.fsdecode(b"".join(pieces))


def number_in(path: str, default: float) -> float:
    try:
        return float(read(path) or default)
    except ValueError:
        return default


def ignored_signals() -> list[int]:
    """The signals that a program would inherit as ignored. Exec itself resets handlers."""
    candidates = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, 32, 33}
    return [number for number in candidates if signal.getsignal(number) == signal.SIG_IGN]


def start_time(pid: int) -> int:
    # Field 22. The program name before it may contain spaces and brackets, so count from the last
    # bracket. 0 means that the process has already been reaped.
    return int((read(f"/proc/{pid}/stat").rpartition(")")[2].split() or ["0"] * 20)[19])


def clear_environ() -> None:
    """Overwrite the memory that held the initial environment, which /proc/PID/environ shows."""
    start, end = (int(field) for field in read("/proc/self/stat").rpartition(")")[2].split()[47:49])
    memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
    os.pwrite(memory, bytes(end - start), start)
    os.close(memory)
