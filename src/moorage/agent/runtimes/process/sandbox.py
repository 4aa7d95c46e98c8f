"""Sandbox of one process kernel: uid, namespaces, mounts, control groups and system calls (decision
23).

``isolation.py`` determines what a sandbox contains. The supervisors of kernels and of commands
apply it between fork and exec. This module does the work of bubblewrap without another program, so
that the kernel's exit status, exec error and signals are exactly the same as without a sandbox.

* The kernel runs under its session's uid without capabilities, and cannot gain any:
  no-new-privileges is set, the bounding set is empty, and the system call filter refuses new user
  namespaces.
* It has its own namespaces for mounts, pids and IPC, and its session has one for the network. ``/``
  is read-only. Private directories in memory replace those in ``empty``. Of their hidden contents,
  ``visible`` is mounted read-only, and ``writable`` is mounted writable.
* It starts in its control groups, so that none of its processes escapes their limits.

It uses little of the standard library, because every import delays the start of every kernel
(decision 15).
"""

from __future__ import annotations

import _ctypes
import marshal
import os
import stat

CLONE_NEWNS = 0x20000
CLONE_NEWIPC = 0x8000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
_MS_NOSUID = 2
_MS_NODEV = 4
_MS_NOEXEC = 8
_MS_BIND = 4096
_MS_PRIVATE = 1 << 18
_ATTR_RDONLY = 1
_ATTR_NOSUID = 2
_ATTR_NODEV = 4
_SYS_MOUNT_SETATTR = 442
_AT_RECURSIVE = 0x8000
_AT_FDCWD = -100
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
HOSTS = "/etc/hosts"


class _Int(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "i"


class _Short(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "H"


class _Byte(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "B"


class _Address(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "P"


class _Function(_ctypes.CFuncPtr):
    _flags_ = 1 | 8  # FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
    _restype_ = _Int


class _Program(_ctypes.Structure):
    """``struct sock_fprog``"""

    _fields_ = (("length", _Short), ("filter", _Address))


_libc = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]


def _call(name: str, *arguments: object) -> None:
    """Call a function of the C library. Raises ``OSError`` if it returns -1."""
    result = _Function(_ctypes.dlsym(_libc, name))(*arguments)
    if result == -1:
        number = _ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    _call("unshare", flags)


def join(pidfd: int, flags: int) -> None:
    """Join a process's namespaces."""
    _call("setns", pidfd, flags)


def enter_network(path: str) -> None:
    """Join the network namespace of this file. This requires root and access to the node's
    files."""
    namespace = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        join(namespace, CLONE_NEWNET)
    finally:
        os.close(namespace)


def _set_attributes(path: str, on: int, off: int = 0, *, recursive: bool = False) -> None:
    values = (on, off, _MS_PRIVATE if recursive else 0, 0)
    attributes = b"".join(value.to_bytes(8, "little") for value in values)
    flags = _AT_RECURSIVE if recursive else 0

    _call(
        "syscall",
        _SYS_MOUNT_SETATTR,
        _AT_FDCWD,
        os.fsencode(path),
        flags,
        attributes,
        len(attributes),
    )


def _mount(source: str, target: str, kind: str, flags: int, *, options: str = "") -> None:
    _call("mount", *map(os.fsencode, (source, target, kind)), flags, os.fsencode(options))


class Sandbox:
    """A sandbox. ``session``: the owner of ``uid``. ``groups``: the ``cgroup.procs`` files to join.
    ``memory``: the file that counts OOM kills. ``empty`` and ``visible``: absolute paths without
    symbolic links, parents first. ``writable``: the path on the node and the path inside.
    ``system_calls``: the filter, a program for seccomp(2). ``hosts``: the file on the node that
    replaces /etc/hosts, or ""."""

    def __init__(
        self,
        session: str,
        uid: int,
        groups: tuple[str, ...],
        memory: str,
        *,
        empty: tuple[str, ...],
        visible: tuple[str, ...],
        writable: tuple[str, str],
        system_calls: bytes,
        hosts: str = "",
    ) -> None:
        self.session = session
        self.uid = uid
        self.groups = groups
        self.memory = memory
        self.empty = empty
        self.visible = visible
        self.writable = writable
        self.system_calls = system_calls
        self.hosts = hosts

    def encode(self) -> str:
        fields = (
            self.session,
            self.uid,
            self.groups,
            self.memory,
            self.empty,
            self.visible,
            self.writable,
        )
        # Without hosts, this is the previous release's format.
        return marshal.dumps((*fields, self.system_calls, *filter(None, [self.hosts]))).hex()

    @classmethod
    def decode(cls, text: str) -> Sandbox:
        session, uid, groups, memory, empty, visible, writable, system_calls, *hosts = (
            marshal.loads(bytes.fromhex(text))
        )
        return cls(
            session,
            uid,
            groups,
            memory,
            empty=empty,
            visible=visible,
            writable=writable,
            system_calls=system_calls,
            hosts=hosts[0] if hosts else "",
        )

    def join_groups(self) -> None:
        """Move this process into the groups. This requires root."""
        for path in self.groups:
            fd = os.open(path, os.O_WRONLY)
            os.write(fd, b"0")
            os.close(fd)

    def mount(self) -> None:
        """Enter new mount and IPC namespaces, and mount the kernel's view of the files. Must run as
        root, and as process 1 of a new pid namespace."""
        unshare(CLONE_NEWNS | CLONE_NEWIPC)
        umask = os.umask(0o022)
        try:
            self._mount()
        finally:
            os.umask(umask)

    def _mount(self) -> None:
        writable = os.open(self.writable[0], os.O_PATH)
        visible = [(path, os.open(path, os.O_PATH)) for path in self.visible]
        hosts = os.open(self.hosts, os.O_PATH) if self.hosts else -1
        _set_attributes("/", _ATTR_RDONLY | _ATTR_NOSUID, recursive=True)

        for path in self.empty:
            # All users can write to shared memory and /tmp. The other directories only lead to the
            # mounts below.
            mode = "1777" if path in ("/tmp", "/var/tmp", "/dev/shm") else "755"
            _mount(
                "tmpfs", path, kind="tmpfs", flags=_MS_NOSUID | _MS_NODEV, options=f"mode={mode}"
            )

        for path, fd in visible:
            _bind(fd, path)

        if self.hosts:
            _mount(f"/proc/self/fd/{hosts}", HOSTS, "none", _MS_BIND)
            os.close(hosts)

        target = self.writable[1]
        _bind(writable, target)
        _set_attributes(target, _ATTR_NOSUID | _ATTR_NODEV, _ATTR_RDONLY)
        _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
        os.close(writable)
        for _, fd in visible:
            os.close(fd)

    def give_outputs(self) -> None:
        """Allow the uid to reopen its standard streams by name (/dev/stdout)."""
        for fd in (0, 1, 2):
            mode = os.fstat(fd).st_mode
            if stat.S_ISFIFO(mode) or (stat.S_ISCHR(mode) and os.isatty(fd)):
                os.fchown(fd, self.uid, self.uid)

    def drop_privileges(self) -> None:
        """Become the uid permanently."""
        for capability in range(64):
            try:
                _call("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0)
            except OSError:
                break  # beyond the last capability that this Linux has

        os.setgroups([])
        os.setresgid(self.uid, self.uid, self.uid)
        os.setresuid(self.uid, self.uid, self.uid)
        header = _CAPABILITY_VERSION_3.to_bytes(4, "little") + bytes(4)
        _call("capset", header, bytes(24))
        _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        self._filter_system_calls()

    def _filter_system_calls(self) -> None:
        class Code(_ctypes.Array):  # type: ignore[type-arg]
            _type_ = _Byte
            _length_ = len(self.system_calls)

        code = Code.from_buffer_copy(self.system_calls)
        program = _Program(len(self.system_calls) // 8, _ctypes.addressof(code))
        _call("prctl", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _ctypes.byref(program), 0, 0)

    def oom_kills(self) -> int:
        """The number of the kernel's processes that Linux has killed for lack of memory."""
        try:
            with open(self.memory, encoding="ascii") as file:
                events = dict(line.split() for line in file)
        except (OSError, ValueError):
            return 0
        return int(events.get("oom_kill", 0))


def _bind(fd: int, target: str) -> None:
    """Mount the file behind ``fd`` on ``target``, which is created."""
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_RDONLY, 0o644))
    _mount(f"/proc/self/fd/{fd}", target, "none", _MS_BIND)
