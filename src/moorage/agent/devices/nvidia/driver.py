"""The NVIDIA driver: opens its management library (NVML) and explains its failures.

The library works only with a kernel module of the same version. After an upgrade, a process keeps
the old library while new programs load the new one, so the library is reloaded once its file has
changed.

Calls do IO: make them in a thread, one at a time.
"""

from __future__ import annotations

import ctypes
import importlib
from pathlib import Path
from typing import Any

import structlog

log = structlog.get_logger("moorage.agent.nvidia")

_LIBRARY = "libnvidia-ml.so.1"
_NVIDIA = "0x10de"  # PCI vendor
_DISPLAY = "0x03"  # PCI class

# What an operator should do next, by error code from nvml.h.
_NEXT_STEPS = {
    4: "give the agent's user access to /dev/nvidia*, and for slices to /dev/nvidia-caps",
    9: "load it with `modprobe nvidia`; `dmesg` shows why it is not loaded",
    15: "it fell off the bus: reset it with `nvidia-smi --gpu-reset`, or reboot the node",
    16: "`nvidia-smi --gpu-reset`",
    18: (
        "the driver was upgraded and the node has not been rebooted (Driver/library version "
        "mismatch)"
    ),
}
_DRIVER_NOT_LOADED = 9


class DriverFailed(Exception):
    """The driver does not answer, for the reason in the message. ``absent``: nothing suggests that
    this node has an NVIDIA GPU."""

    def __init__(self, reason: str, *, absent: bool = False) -> None:
        super().__init__(reason)
        self.absent = absent


class NvidiaDriver:
    """The driver. ``nvml``: the library; by default this node's, once it is installed. ``root``:
    the directory with /proc and /sys."""

    def __init__(self, nvml: Any = None, root: Path = Path("/")) -> None:
        self.root = root
        self.generation = 0
        """Increases when the library is opened, which invalidates earlier handles and events."""
        self._nvml = nvml
        self._open = False
        self._file: tuple[Path, object] | None = None
        """The library's file, and that file's identity when the library was loaded."""

    def open(self) -> Any:
        """The library (the module ``pynvml``), ready for queries. Raises ``DriverFailed``."""
        if self._file is not None and _identity(self._file[0]) != self._file[1]:
            log.warning("the library of the NVIDIA driver was replaced", file=str(self._file[0]))
            self.close()
            self._unload()

        if self._open:
            return self._nvml
        if self._nvml is None:
            self._nvml = self._load()

        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            not_loaded = getattr(error, "value", None) == _DRIVER_NOT_LOADED
            raise DriverFailed(
                explain(error), absent=not_loaded and not has_gpu(self.root)
            ) from error

        self._open = True
        self.generation += 1
        return self._nvml

    def close(self) -> None:
        """Stop using the driver until the next ``open``, so that its kernel module can be
        replaced."""
        if not self._open:
            return
        self._open = False
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError as error:
            log.info("the NVIDIA driver does not close", error=str(error))

    def _load(self) -> Any:
        # This check precedes the import, which would cost 15 MiB of memory on every node without a
        # driver.
        try:
            library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            missing = str(error).startswith(f"{_LIBRARY}:") and "No such file" in str(error)
            absent = missing and not has_gpu(self.root)
            reason = f"no driver is installed (there is no {_LIBRARY})" if missing else str(error)
            raise DriverFailed(reason, absent=absent) from error

        try:
            import pynvml
        except ImportError as error:
            raise DriverFailed("the package nvidia-ml-py is not installed") from error
        finally:
            self._file = _file_of_library()
            _close(library)

        return pynvml

    def _unload(self) -> None:
        """Unload the library, so that the next import reads its file."""
        module = self._nvml
        self._nvml = None
        self._file = None
        library = module.nvmlLib
        importlib.reload(module)  # drops the module's pointers into the library
        if library is not None:
            _close(library)


def explain(error: Exception) -> str:
    """An NVML error as text for operators, with the next step."""
    step = _NEXT_STEPS.get(getattr(error, "value", 0))
    text = str(error).rstrip(".")
    return f"{text}: {step}" if step else text


def failing(reason: object) -> str:
    """The reason why all GPUs of a node with a failed driver are unhealthy."""
    return f"the driver fails: {reason}"


def unreachable(error: Exception) -> str:
    """The reason why a GPU is unhealthy if the driver answers with this error."""
    return f"the driver cannot reach it: {explain(error)}"


def has_gpu(root: Path) -> bool:
    """Whether this node has an NVIDIA GPU or NVIDIA's kernel module, regardless of what the driver
    answers."""
    if (root / "proc/driver/nvidia/version").exists():
        return True

    for device in (root / "sys/bus/pci/devices").glob("*"):
        try:
            vendor = (device / "vendor").read_text().strip()
            kind = (device / "class").read_text()
        except OSError:
            continue

        if vendor == _NVIDIA and kind.startswith(_DISPLAY):
            return True

    return False


def _close(library: ctypes.CDLL) -> None:
    import _ctypes

    _ctypes.dlclose(library._handle)


def _file_of_library() -> tuple[Path, object] | None:
    """The file that this process loaded the library from, or None if it is unknown."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None

    for line in lines:
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and Path(fields[5]).name.startswith("libnvidia-ml.so"):
            file = Path(fields[5]).parent / _LIBRARY
            return file, _identity(file)

    return None


def _identity(file: Path) -> object:
    """The identity of a file, or of a link's target, which changes when the file is replaced. None
    if it does not exist."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
