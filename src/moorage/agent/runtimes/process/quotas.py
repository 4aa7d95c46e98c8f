"""User quotas on a file system: whether Linux enforces them, and setting a uid's quota.

Quotas are by uid rather than by project, because a file's owner can move it to another project
(FS_IOC_FSSETXATTR), but cannot give it to another user. ext4 and XFS support them if mounted with
``usrquota``.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

# Linux: include/uapi/linux/{quota,dqblk_xfs}.h; quotactl_fd(2) exists since Linux 5.14, with the
# same number on all architectures.
_SYS_QUOTACTL_FD = 443
_OF_USERS = 0
_Q_SETQUOTA = 0x800008
_Q_XGETQSTAT = 0x5805
_LIMITS_ENFORCED = 2
_FLAGS_AT = 2
_STATE_BYTES = 256
_BLOCK_LIMITS = 1
_FILE_LIMITS = 4
_BLOCK = 1024
# A file takes at least a block. A file system has about one file for this many bytes.
_BYTES_PER_FILE = 16 * 1024
_LEAST_FILES = 10_000

_libc = ctypes.CDLL(None, use_errno=True)


def is_enforced(folder: Path) -> bool:
    """Whether the file system of ``folder`` enforces user quotas instead of only counting usage."""
    state = ctypes.create_string_buffer(_STATE_BYTES)
    try:
        _quotactl(folder, _Q_XGETQSTAT, 0, state)
    except OSError:
        return False  # no quotas, or an older Linux
    (flags,) = struct.unpack_from("=H", state.raw, _FLAGS_AT)
    return bool(flags & _LIMITS_ENFORCED)


def limit_user(folder: Path, uid: int, size: int) -> None:
    """Limit the usage of ``uid`` on that file system to ``size`` bytes, and its number of files
    accordingly. Raises ``OSError``."""
    _quotactl(folder, _Q_SETQUOTA, uid, ctypes.create_string_buffer(quota(size)))


def quota(size: int) -> bytes:
    """``struct if_dqblk`` with only hard limits."""
    files = max(_LEAST_FILES, size // _BYTES_PER_FILE)
    return struct.pack(
        "=8QI4x", size // _BLOCK, 0, 0, files, 0, 0, 0, 0, _BLOCK_LIMITS | _FILE_LIMITS
    )


def _quotactl(folder: Path, command: int, uid: int, argument: ctypes.Array[ctypes.c_char]) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        code = ctypes.c_uint(command << 8 | _OF_USERS)
        if _libc.syscall(_SYS_QUOTACTL_FD, fd, code, ctypes.c_uint(uid), argument) == -1:
            number = ctypes.get_errno()
            raise OSError(number, f"quotactl: {os.strerror(number)}", str(folder))
    finally:
        os.close(fd)
