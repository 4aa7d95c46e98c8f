"""System call filter for sandboxed kernels: a deny list as a program for seccomp(2). Pure.

It refuses calls that would lead out of the sandbox, or that need no privileges and have a history
of faults in Linux: new user namespaces, mounts, keyrings, BPF, performance events, userfaultfd and
io_uring. Everything else works as without the filter. Debuggers reach only processes in the same
session. The list follows Docker's default profile for containers without capabilities.
"""

from __future__ import annotations

import errno
import struct

# Linux: include/uapi/linux/{audit,bpf_common,seccomp}.h, and the system call tables of each
# architecture.
_LOAD = 0x20
_EQUAL = 0x15
_AT_LEAST = 0x35
_ANY_BIT = 0x45
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
# offsets in struct seccomp_data
_NUMBER = 0
_ARCH = 4
_FIRST_ARGUMENT = 16
_NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW* flag of clone(2)
_X32 = 0x40000000  # the second system call table of x86-64
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
# These have the same numbers on all architectures since Linux 5.0.
_NEWER = (425, 426, 427, 428, 429, 430, 431, 432, 433, 442)
_DENIED = {
    # unshare setns mount umount2 pivot_root bpf add_key request_key keyctl perf_event_open
    # userfaultfd kexec_load kexec_file_load init_module finit_module delete_module
    # open_by_handle_at
    "x86_64": (272, 308, 165, 166, 155, 321, 248, 249, 250, 298, 323, 246, 320, 175, 313, 176, 304),
    "aarch64": (97, 268, 40, 39, 41, 280, 217, 218, 219, 241, 282, 104, 294, 105, 273, 106, 265),
}


def deny_filter(machine: str) -> bytes:
    """The filter for an architecture, as named by ``os.uname().machine``. Raises ``KeyError`` for
    unsupported ones."""
    denied = sorted((*_DENIED[machine], *_NEWER))
    refuse = _ERRNO | errno.EPERM
    no_such_call = _ERRNO | errno.ENOSYS

    # A jump is relative: (code, skip if true, skip if false, value).
    body = [(_EQUAL, 0, 1, number, refuse) for number in denied]
    program = [
        _op(_LOAD, _ARCH),
        _op(_EQUAL, _AUDIT_ARCH[machine], 1, 0),
        _op(_RETURN, refuse),
        _op(_LOAD, _NUMBER),
        _op(_AT_LEAST, _X32, 0, 1),
        _op(_RETURN, refuse),
    ]
    for code, if_true, if_false, number, result in body:
        program += [_op(code, number, if_true, if_false), _op(_RETURN, result)]

    program += [
        # clone3's flags are in memory, which a filter cannot read. It is reported as missing, and C
        # libraries then use clone.
        _op(_EQUAL, _CLONE3, 0, 1),
        _op(_RETURN, no_such_call),
        _op(_EQUAL, _CLONE[machine], 0, 3),
        _op(_LOAD, _FIRST_ARGUMENT),
        _op(_ANY_BIT, _NEW_NAMESPACES, 0, 1),
        _op(_RETURN, refuse),
        _op(_RETURN, _ALLOW),
    ]
    return b"".join(program)


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
