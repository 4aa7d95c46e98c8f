"""Disks of sandboxed kernels: a limit on the data that each kernel has in its working directory.

If the file system with the agent's state enforces user quotas, a session's uid gets a quota.
Otherwise, a kernel has its own file system: ext4 in a sparse file STATE/disks/NAME.img, mounted on
its working directory or on its session's kept workspace. Its name identifies the owner, so there is
no other record. A spare file system is kept ready, because creating one takes longer than starting
a kernel.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from contextlib import nullcontext
from pathlib import Path

import structlog

from moorage.agent.runtimes.base import CreateFailed, RuntimeFailed
from moorage.agent.runtimes.process import quotas
from moorage.common.model.ids import KernelId
from moorage.common.model.slots import format_amount

log = structlog.get_logger("moorage.agent.process")
_MS_BIND = 4096
_MNT_DETACH = 2
_TRIAL_BYTES = 64 << 20
# No zeros are written for unused tables, so that the file stays as small as its contents.
_FORMAT = (
    "-q",
    "-F",
    "-m",
    "0",
    "-i",
    "32768",
    "-J",
    "size=8",
    "-E",
    "nodiscard,lazy_itable_init=1",
)
_OPTIONS = "loop,nosuid,nodev,noatime,discard,noinit_itable"
_OF_KERNEL = "kernel-"
_OF_SESSION = "session-"
_SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_TOOL_TIMEOUT_S = 60
_libc = ctypes.CDLL(None, use_errno=True)


def kernel_disk(kernel_id: KernelId) -> str:
    return f"{_OF_KERNEL}{kernel_id}"


def workspace_disk(session_id: str) -> str:
    return f"{_OF_SESSION}{session_id}"


class KernelDisks:
    """The disks. ``state``: the agent's state directory. ``limit``: bytes for each kernel; 0 means
    no limit. All methods block."""

    def __init__(self, state: Path, limit: int) -> None:
        self._state = state
        self._limit = limit
        self._images = state / "disks"
        self._by_quota = False
        self._wanted = False
        self._closed = False
        self._spares = 0
        self._spare: Path | None = None
        self._taken: list[Path] = []
        self._lock = threading.Lock()
        self._providing = threading.Lock()

    def prepare(self) -> None:
        """Find out how kernels can be limited, and adopt the disks from earlier runs. Raises
        ``RuntimeFailed`` if kernels cannot be limited."""
        with self._lock:
            self._spare = None
            self._taken = []
            self._take_up()
            self._by_quota = bool(self._limit) and quotas.is_enforced(self._state)
            if not self._limit or self._by_quota:
                return

            trial = self._images / "trial"
            try:
                self._make(trial, trial.with_suffix(".img"), _TRIAL_BYTES)
            except (OSError, RuntimeFailed) as error:
                raise self._impossible(error) from None
            finally:
                remove_disk(trial, trial.with_suffix(".img"))

    def _impossible(self, error: OSError | RuntimeFailed) -> RuntimeFailed:
        why = error.message if isinstance(error, RuntimeFailed) else str(error)
        return RuntimeFailed(
            f"agent.process_disk = {format_amount('mem', self._limit)} cannot be enforced: the "
            f"file system of {self._state} enforces no user quotas, and a file there cannot be "
            f"mounted ({why})",
            next_step="mount that file system with usrquota, or let the agent use loop devices, "
            "mount and "
            'mkfs.ext4; agent.process_disk = "0" gives up the limit; or use containers (runtime '
            "docker)",
        )

    def provide(self, folder: Path, name: str) -> None:
        """Mount a file system on an empty working directory, unless a quota limits it. Raises
        ``CreateFailed`` or ``OSError``."""
        if not self._limit or self._by_quota:
            return
        # Kernels of one session may start at the same time, and they share its kept workspace.
        with self._providing if name.startswith(_OF_SESSION) else nullcontext():
            self._provide(folder, name)

    def _provide(self, folder: Path, name: str) -> None:
        if os.path.ismount(folder):
            return

        if os.listdir(folder):
            log.warning(
                "a workspace from before agent.process_disk was set has no limit",
                folder=str(folder),
            )
            return

        image = self._images / f"{name}.img"
        spare = self._take_spare()
        if spare is None:
            try:
                self._make(folder, image, self._limit)
            except RuntimeFailed as error:
                raise CreateFailed(error.message, next_step=error.next_step) from None

            return

        spare.with_suffix(".img").rename(image)
        _mount(spare, folder)
        with self._lock:
            self._taken.append(spare)

    def limit_user(self, uid: int) -> None:
        """Limit all of a session's files, if quotas are used. Raises ``OSError``."""
        if self._by_quota:
            quotas.limit_user(self._state, uid, self._limit)

    def remove(self, folder: Path, name: str) -> None:
        """Remove the file system from ``provide``, with its contents."""
        remove_disk(folder, self._images / f"{name}.img")

    def replenish(self) -> None:
        """Create the next file system, once one has been needed."""
        with self._lock:
            self._release_taken()
            if not self._wanted or self._spare is not None or self._closed:
                return

            self._spares += 1
            spare = self._images / f"spare-{os.getpid()}-{self._spares}"
            try:
                self._make(spare, spare.with_suffix(".img"), self._limit)
                self._spare = spare
            except (OSError, RuntimeFailed) as error:
                remove_disk(spare, spare.with_suffix(".img"))
                log.warning(
                    "cannot prepare the disk of a kernel; kernels start more slowly",
                    error=str(error),
                )

    def close(self) -> None:
        """Remove the spare file system. The kernels' and workspaces' file systems stay."""
        with self._lock:
            self._closed = True
            self._release_taken()
            if self._spare is not None:
                remove_disk(self._spare, self._spare.with_suffix(".img"))
                self._spare = None

    def _take_spare(self) -> Path | None:
        with self._lock:
            spare = self._spare
            self._spare = None
            self._wanted = True
            return spare

    def _release_taken(self) -> None:
        """Release the spare that was taken. A kernel start does not do this, because Linux then
        waits for all CPUs."""
        while self._taken:
            spare = self._taken.pop()
            _unmount(spare)
            spare.rmdir()

    def _make(self, folder: Path, image: Path, size: int) -> None:
        """Create a file system. Raises ``RuntimeFailed`` or ``OSError``, in which case nothing is
        left behind."""
        self._images.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        image.unlink(missing_ok=True)

        try:
            with open(
                os.open(image, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb"
            ) as file:
                file.truncate(size)

            _run("mkfs.ext4", *_FORMAT, str(image))
            _run("mount", "-o", _OPTIONS, str(image), str(folder))
            (folder / "lost+found").rmdir()
            folder.chmod(0o700)
        except BaseException:
            _unmount(folder)
            image.unlink(missing_ok=True)
            raise

    def _take_up(self) -> None:
        """Mount the kept workspaces again after a boot, and remove orphaned file systems."""
        for image in sorted(self._images.glob("*.img")):
            kernel = self._state / "kernels" / image.stem.removeprefix(_OF_KERNEL)
            kept = self._state / "workspaces" / "kept" / image.stem.removeprefix(_OF_SESSION)
            if image.stem.startswith(_OF_SESSION) and kept.is_dir():
                self._mount_again(image, kept)
            elif not (image.stem.startswith(_OF_KERNEL) and kernel.is_dir()):
                remove_disk(self._images / image.stem, image)

        for folder in self._images.glob("*/"):  # a spare that was already mounted elsewhere
            _unmount(folder)
            folder.rmdir()

    @staticmethod
    def _mount_again(image: Path, kept: Path) -> None:
        if os.path.ismount(kept):
            return
        try:
            _run("mount", "-o", _OPTIONS, str(image), str(kept))
        except RuntimeFailed as error:
            log.error("a kept workspace cannot be mounted", folder=str(kept), error=error.message)


def remove_disk(folder: Path, image: Path) -> None:
    """Remove the file system in ``image`` from ``folder`` with its contents, and a folder beside
    the image. Does nothing if there is none.

    Kernels that have started since have it among their mounts, invisibly, until the folder is
    removed and Linux also unmounts it there.
    """
    _unmount(folder)
    image.unlink(missing_ok=True)
    if folder.parent == image.parent and folder.is_dir():
        folder.rmdir()


def _run(program: str, *arguments: str) -> None:
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}")
    if path is None:
        raise RuntimeFailed(f"there is no {program} on this node")

    try:
        done = subprocess.run(
            [path, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TOOL_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeFailed(f"{program} does not end within {_TOOL_TIMEOUT_S} s") from None

    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[:200]
        raise RuntimeFailed(f"{program}: {said or f'exit status {done.returncode}'}")


def _mount(source: Path, target: Path) -> None:
    """Bind-mount ``source`` at ``target``. Raises ``OSError``."""
    if (
        _libc.mount(
            os.fsencode(source), os.fsencode(target), b"none", ctypes.c_ulong(_MS_BIND), None
        )
        == -1
    ):
        number = ctypes.get_errno()
        raise OSError(number, f"mount: {os.strerror(number)}", str(target))


def _unmount(folder: Path) -> None:
    """Unmount a folder. Does nothing if nothing is mounted. Linux shuts the file system down when
    it is no longer in use. Its last user is a thread, which waits until everything is written."""
    if not os.path.ismount(folder):
        return
    last = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    _libc.umount2(os.fsencode(folder), _MNT_DETACH)
    threading.Thread(target=os.close, args=(last,), name="kernel-disk", daemon=True).start()
