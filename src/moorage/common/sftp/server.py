"""SFTP server for one directory tree: the answer to each packet.

It accesses the files only through ``Root``, so nothing that a client or the session does leads out
of the tree.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from moorage.common.sftp import wire
from moorage.common.sftp.confined import Root, leads_out, reopen
from moorage.common.sftp.wire import Attributes, Malformed, PacketKind, PacketReader, SftpStatus

MAX_HANDLES = 256
_LAST_TIME = 4_102_444_800  # the year 2100
_NAMES_AT_ONCE = 100
_DATA_AT = 13  # in a data packet, after its length, type, id and the length of the data
_READ = 1
_WRITE = 2
_APPEND = 4
_CREATE = 8
_TRUNCATE = 16
_EXCLUSIVE = 32
_EXTENSIONS = (
    (b"posix-rename@openssh.com", b"1"),
    (b"hardlink@openssh.com", b"1"),
    (b"fsync@openssh.com", b"1"),
    (b"statvfs@openssh.com", b"2"),
    (b"limits@openssh.com", b"1"),
)


class OpenDirectory:
    """An open directory. ``entries``: the entries not sent yet."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.entries = self._read()

    def _read(self) -> Iterator[tuple[bytes, bytes, Attributes]]:
        for name in (".", "..", *sorted(os.listdir(self.fd))):
            try:
                found = os.stat(
                    name if name != ".." else ".", dir_fd=self.fd, follow_symlinks=False
                )
            except FileNotFoundError:
                continue
            raw = os.fsencode(name)
            yield raw, long_line(raw, found), attributes_of(found)


class Server:
    """``answer`` handles one packet. ``by_walking`` is as in ``Root``."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._prefix = b""
        self._handles: dict[bytes, int | OpenDirectory] = {}
        self._made = 0
        self._requests: dict[int, Callable[[bytes, PacketReader], bytes | bytearray]] = {
            PacketKind.OPEN: self._open,
            PacketKind.CLOSE: self._close,
            PacketKind.READ: self._read,
            PacketKind.WRITE: self._write,
            PacketKind.LSTAT: lambda request, r: self._stat(request, r, follow=False),
            PacketKind.STAT: lambda request, r: self._stat(request, r, follow=True),
            PacketKind.FSTAT: self._fstat,
            PacketKind.SETSTAT: self._setstat,
            PacketKind.FSETSTAT: self._fsetstat,
            PacketKind.OPENDIR: self._opendir,
            PacketKind.READDIR: self._readdir,
            PacketKind.REMOVE: self._remove,
            PacketKind.MKDIR: self._mkdir,
            PacketKind.RMDIR: self._rmdir,
            PacketKind.REALPATH: self._realpath,
            PacketKind.RENAME: lambda request, r: self._rename(request, r, replaces=False),
            PacketKind.READLINK: self._readlink,
            PacketKind.SYMLINK: self._symlink,
            PacketKind.EXTENDED: self._extended,
        }

    def answer(self, packet: bytes) -> bytes | bytearray:
        """Answer a packet without its length. Raises ``Malformed`` for a packet without an id."""
        reader = PacketReader(packet)
        kind = reader.byte()
        if kind == PacketKind.INIT:
            return self._init(reader)

        request = reader.take(4)
        handle = self._requests.get(kind)
        if handle is None:
            return wire.status(
                request, SftpStatus.OP_UNSUPPORTED, f"requests of type {kind} are not supported"
            )

        try:
            return handle(request, reader)
        except Malformed as error:
            return wire.status(request, SftpStatus.BAD_MESSAGE, str(error))
        except FileNotFoundError:
            return wire.status(request, SftpStatus.NO_SUCH_FILE, "No such file or directory")
        except PermissionError as error:
            return wire.status(
                request, SftpStatus.PERMISSION_DENIED, error.strerror or "Permission denied"
            )
        except (OSError, OverflowError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            return wire.status(request, SftpStatus.FAILURE, reason)

    def close(self) -> None:
        for handle in self._handles.values():
            os.close(handle if isinstance(handle, int) else handle.fd)
        self._handles.clear()

    def _init(self, r: PacketReader) -> bytes:
        r.number()
        while r.left:
            name = r.text()
            value = r.text()
            if name == wire.HANDLE_PREFIX:
                self._prefix = value[:16]
        pairs = [wire.text(name) + wire.text(value) for name, value in _EXTENSIONS]
        return wire.packet(PacketKind.VERSION, wire.number(wire.VERSION), *pairs)

    def _keep(self, request: bytes, handle: int | OpenDirectory) -> bytes:
        self._made += 1
        name = self._prefix + wire.number(self._made & 0xFFFFFFFF)
        self._handles[name] = handle
        return wire.packet(PacketKind.HANDLE, request, wire.text(name))

    def _check_room(self) -> None:
        if len(self._handles) >= MAX_HANDLES:
            raise OSError(errno.EMFILE, f"one connection has at most {MAX_HANDLES} open files")

    def _file(self, r: PacketReader) -> int:
        handle = self._handles.get(r.text())
        if not isinstance(handle, int):
            raise Malformed("no open file has this handle")
        return handle

    def _open(self, request: bytes, r: PacketReader) -> bytes:
        path = r.path()
        asked = r.number()
        given = r.attributes()
        self._check_room()
        flags = (
            os.O_RDWR
            if asked & _READ and asked & _WRITE
            else os.O_WRONLY
            if asked & _WRITE
            else os.O_RDONLY
        )
        if flags != os.O_RDONLY:
            pairs = (
                (_CREATE, os.O_CREAT),
                (_TRUNCATE, os.O_TRUNC),
                (_EXCLUSIVE, os.O_EXCL),
                (_APPEND, os.O_APPEND),
            )
            for bit, flag in pairs:
                flags |= flag if asked & bit else 0

        mode = 0o666 if given.mode is None else given.mode
        return self._keep(request, self._root.open_file(path, flags, mode))

    def _close(self, request: bytes, r: PacketReader) -> bytes:
        handle = self._handles.pop(r.text(), None)
        if handle is None:
            raise Malformed("nothing open has this handle")
        os.close(handle if isinstance(handle, int) else handle.fd)
        return wire.status(request, SftpStatus.OK)

    def _read(self, request: bytes, r: PacketReader) -> bytes | bytearray:
        fd = self._file(r)
        offset = r.long()
        size = min(r.number(), wire.MAX_DATA)

        # As `wire.packet`, without copies.
        packet = bytearray(_DATA_AT + size)
        with memoryview(packet) as view:
            found = os.preadv(fd, [view[_DATA_AT:]], offset)

        if not found:
            return wire.status(request, SftpStatus.EOF)

        del packet[_DATA_AT + found :]
        head = (
            wire.number(_DATA_AT - 4 + found),
            bytes((PacketKind.DATA,)),
            request,
            wire.number(found),
        )
        packet[:_DATA_AT] = b"".join(head)
        return packet

    def _write(self, request: bytes, r: PacketReader) -> bytes:
        fd = self._file(r)
        offset = r.long()
        data = memoryview(r.text())
        while data:
            done = os.pwrite(fd, data, offset)
            data = data[done:]
            offset = offset + done
        return wire.status(request, SftpStatus.OK)

    def _stat(self, request: bytes, r: PacketReader, *, follow: bool) -> bytes:
        with self._root.found(r.path(), follow=follow) as fd:
            return wire.packet(
                PacketKind.ATTRS, request, wire.attributes(attributes_of(os.fstat(fd)))
            )

    def _fstat(self, request: bytes, r: PacketReader) -> bytes:
        return wire.packet(
            PacketKind.ATTRS, request, wire.attributes(attributes_of(os.fstat(self._file(r))))
        )

    def _setstat(self, request: bytes, r: PacketReader) -> bytes:
        path = r.path()
        given = r.attributes()
        with self._root.found(path) as fd:
            if given.size is not None:
                file = reopen(fd, os.O_WRONLY)
                try:
                    os.ftruncate(file, given.size)
                finally:
                    os.close(file)

            _set_attributes(fd, given)

        return wire.status(request, SftpStatus.OK)

    def _fsetstat(self, request: bytes, r: PacketReader) -> bytes:
        fd = self._file(r)
        given = r.attributes()
        if given.size is not None:
            os.ftruncate(fd, given.size)
        _set_attributes(fd, given)
        return wire.status(request, SftpStatus.OK)

    def _opendir(self, request: bytes, r: PacketReader) -> bytes:
        path = r.path()
        self._check_room()
        return self._keep(
            request, OpenDirectory(self._root.open(path, os.O_RDONLY | os.O_DIRECTORY))
        )

    def _readdir(self, request: bytes, r: PacketReader) -> bytes:
        handle = self._handles.get(r.text())
        if not isinstance(handle, OpenDirectory):
            raise Malformed("no open directory has this handle")
        found = [entry for _, entry in zip(range(_NAMES_AT_ONCE), handle.entries, strict=False)]
        return wire.names(request, found) if found else wire.status(request, SftpStatus.EOF)

    def _remove(self, request: bytes, r: PacketReader) -> bytes:
        with self._root.parent(r.path()) as (fd, name):
            os.unlink(name, dir_fd=fd)
        return wire.status(request, SftpStatus.OK)

    def _mkdir(self, request: bytes, r: PacketReader) -> bytes:
        path = r.path()
        given = r.attributes()
        with self._root.parent(path) as (fd, name):
            os.mkdir(name, (0o777 if given.mode is None else given.mode) & 0o777, dir_fd=fd)
        return wire.status(request, SftpStatus.OK)

    def _rmdir(self, request: bytes, r: PacketReader) -> bytes:
        with self._root.parent(r.path()) as (fd, name):
            os.rmdir(name, dir_fd=fd)
        return wire.status(request, SftpStatus.OK)

    def _realpath(self, request: bytes, r: PacketReader) -> bytes:
        path = wire.normalized(r.path())
        return wire.names(request, [(path, path, Attributes())])

    def _rename(self, request: bytes, r: PacketReader, *, replaces: bool) -> bytes:
        old = r.path()
        new = r.path()
        with (
            self._root.parent(old) as (old_fd, old_name),
            self._root.parent(new) as (new_fd, new_name),
        ):
            if not replaces and _exists(new_fd, new_name):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            os.rename(old_name, new_name, src_dir_fd=old_fd, dst_dir_fd=new_fd)

        return wire.status(request, SftpStatus.OK)

    def _readlink(self, request: bytes, r: PacketReader) -> bytes:
        with self._root.parent(r.path()) as (fd, name):
            target = os.readlink(name, dir_fd=fd)
        return wire.names(request, [(target, target, Attributes())])

    def _symlink(self, request: bytes, r: PacketReader) -> bytes:
        # in OpenSSH's order, which is not the draft's
        target = r.path()
        link = r.path()
        if leads_out(link, target):
            raise PermissionError(errno.EACCES, "the link would lead out of the workspace")
        with self._root.parent(link) as (fd, name):
            os.symlink(target, name, dir_fd=fd)
        return wire.status(request, SftpStatus.OK)

    def _extended(self, request: bytes, r: PacketReader) -> bytes:
        name = r.text()
        if name == b"posix-rename@openssh.com":
            return self._rename(request, r, replaces=True)
        if name == b"hardlink@openssh.com":
            return self._hardlink(request, r)
        if name == b"fsync@openssh.com":
            os.fsync(self._file(r))
            return wire.status(request, SftpStatus.OK)
        if name == b"statvfs@openssh.com":
            return self._statvfs(request, r)

        if name == b"limits@openssh.com":
            limits = (wire.MAX_PACKET, wire.MAX_DATA, wire.MAX_DATA, MAX_HANDLES)
            return wire.packet(
                PacketKind.EXTENDED_REPLY, request, *(limit.to_bytes(8) for limit in limits)
            )

        return wire.status(request, SftpStatus.OP_UNSUPPORTED, "this extension is not supported")

    def _hardlink(self, request: bytes, r: PacketReader) -> bytes:
        old = r.path()
        new = r.path()
        with (
            self._root.parent(old) as (old_fd, old_name),
            self._root.parent(new) as (new_fd, new_name),
        ):
            if not stat.S_ISREG(os.stat(old_name, dir_fd=old_fd, follow_symlinks=False).st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            os.link(old_name, new_name, src_dir_fd=old_fd, dst_dir_fd=new_fd, follow_symlinks=False)

        return wire.status(request, SftpStatus.OK)

    def _statvfs(self, request: bytes, r: PacketReader) -> bytes:
        with self._root.found(r.path()) as fd:
            found = os.fstatvfs(fd)
        fields = (
            *(found.f_bsize, found.f_frsize, found.f_blocks, found.f_bfree, found.f_bavail),
            *(found.f_files, found.f_ffree, found.f_favail, 0, found.f_flag & 3, found.f_namemax),
        )
        return wire.packet(
            PacketKind.EXTENDED_REPLY, request, *(field.to_bytes(8) for field in fields)
        )


def attributes_of(found: os.stat_result) -> Attributes:
    times = tuple(
        min(max(int(moment), 0), 0xFFFFFFFF) for moment in (found.st_atime, found.st_mtime)
    )
    return Attributes(
        found.st_size, (found.st_uid, found.st_gid), found.st_mode, (times[0], times[1])
    )


def long_line(name: bytes, found: os.stat_result) -> bytes:
    at = f"{datetime.fromtimestamp(min(max(found.st_mtime, 0), _LAST_TIME), UTC):%Y-%m-%d %H:%M}"
    owner = f"{found.st_nlink:4d} {found.st_uid:<8d} {found.st_gid:<8d} {found.st_size:8d} {at}"
    return f"{stat.filemode(found.st_mode)} {owner} ".encode() + name


def _set_attributes(fd: int, given: Attributes) -> None:
    """Set mode and times, but not the owner. Bits that make a program run as its owner are
    removed."""
    where = f"/proc/self/fd/{fd}"
    if stat.S_IFMT(os.fstat(fd).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
        raise OSError(errno.EINVAL, "neither a file nor a directory")
    if given.mode is not None:
        os.chmod(where, given.mode & 0o777)
    if given.times is not None:
        os.utime(where, given.times)


def _exists(fd: int, name: bytes) -> bool:
    try:
        os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
