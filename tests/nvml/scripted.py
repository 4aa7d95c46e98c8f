"""A scripted NVIDIA driver: `libnvidia-ml.so.1` from `nvml.c`, and the file from which it answers.

A GPU's answers are those of an H200 (`h200.json`), except those that distinguish one GPU from
another. A test changes the answers while programs that use the library run.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
LIBRARY = "libnvidia-ml.so.1"
GIB = 1024**3
MIB = 1024**2
XID_EVENT = 8  # nvmlEventTypeXidCriticalError

# Codes from nvml.h.
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
GPU_IS_LOST = 15
RESET_REQUIRED = 16
UNKNOWN = 999


def compiler() -> str | None:
    """This machine's C compiler."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


@cache
def recording() -> dict[str, Any]:
    """The answers of an H200."""
    found: dict[str, Any] = json.loads((FOLDER / "h200.json").read_text())
    return found


def encoded(value: object) -> str:
    """A value of the recording as the library reads it."""
    if isinstance(value, Mapping):
        return " ".join(map(str, value.values()))

    if isinstance(value, list):
        structures = value and isinstance(value[0], Mapping)
        words = (
            [":".join(map(str, one.values())) for one in value] if structures else map(str, value)
        )
        return " ".join(words)

    return str(value)


def recorded_answers() -> tuple[dict[str, str], dict[str, str]]:
    """The answers of the library and the GPU, by the keys in `nvml.c`. If a call was recorded both
    with several programs and without, the first recording is used."""
    library: dict[str, str] = {}
    gpu: dict[str, str] = {}
    for entry in recording()["calls"]:
        arguments = [str(argument) for argument in entry.get("arguments", ())]
        answer = (
            f"error {entry['returns']}" if entry["returns"] else encoded(entry.get("value", ""))
        )
        of_library = entry["call"].startswith(("nvmlSystem", "nvmlEvent", "nvmlDeviceGetCount"))
        key = entry["call"]
        if len(arguments) and all(argument.isdigit() for argument in arguments):
            key += "." + ".".join(arguments)

        (library if of_library else gpu).setdefault(key, answer)

    return library, gpu


# Left out of the H200's recording: their answers follow the test's script.
_COMPUTED = (
    *(
        "nvmlDeviceGetHandleByUUID",
        "nvmlDeviceGetHandleByIndex",
        "nvmlDeviceGetMigDeviceHandleByIndex",
    ),
    *(
        "nvmlEventSetWait_v2",
        "nvmlShutdown",
        "nvmlDeviceGetCount",
        "nvmlDeviceGetComputeRunningProcesses",
    ),
    *("nvmlDeviceGetProcessUtilization", "nvmlDeviceGetIndex"),
)


class ScriptedNvml:
    """One machine's driver. ``folder`` contains the library, for ``LD_LIBRARY_PATH``, and the file.

    ``answers`` is the file as a dict; ``set`` and ``clear`` change it, and the library sees the
    change at once.
    """

    def __init__(self, folder: Path, gpus: int = 1, version: str = "580.159.04") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._script = folder / "script"
        self._faults: dict[str, str] = {}
        self._events = itertools.count(1)
        build(folder / LIBRARY)
        library, _ = recorded_answers()
        self.answers = {
            key: value for key, value in library.items() if not key.startswith(_COMPUTED)
        }
        self.answers |= {
            "module": version,
            "library": version,
            "nvmlSystemGetDriverVersion": version,
        }
        self.count = 0
        for _ in range(gpus):
            self.add_gpu()

    @property
    def environment(self) -> dict[str, str]:
        """The environment for processes that are to see this driver."""
        return {"LD_LIBRARY_PATH": str(self.folder), "SCRIPTED_NVML": str(self._script)}

    def uuid(self, gpu: int) -> str:
        return self.answers[f"gpu.{gpu}.nvmlDeviceGetUUID"]

    def add_gpu(self, name: str = "NVIDIA H200", memory: int = 0) -> int:
        """Add a GPU that answers like the recorded one. ``memory`` is in bytes. Returns its
        index."""
        gpu = self.count
        self.count += 1
        _, answers = recorded_answers()
        for call, answer in answers.items():
            if not call.startswith(_COMPUTED):
                self.answers[f"gpu.{gpu}.{call}"] = answer

        bus = gpu + 6
        address = f"0000:{bus:02x}:00.0 0 {bus} 0 590680286 415174878 00000000:{bus:02X}:00.0"
        self.answers |= {
            f"gpu.{gpu}.nvmlDeviceGetUUID": f"GPU-{gpu:08}-2222-3333-4444-555555555555",
            f"gpu.{gpu}.nvmlDeviceGetName": name,
            f"gpu.{gpu}.nvmlDeviceGetPciInfo": address,
            f"gpu.{gpu}.nvmlDeviceGetMinorNumber": str(gpu),
            f"gpu.{gpu}.nvmlDeviceGetComputeRunningProcesses": "",
            f"gpu.{gpu}.nvmlDeviceGetProcessUtilization": "",
            "nvmlDeviceGetCount": str(self.count),
        }
        self.use_memory(gpu, 0, total=memory or 150_754_820_096)

        return gpu

    def use_memory(
        self, gpu: int, used: int, *, total: int = 0, processes: Mapping[int, int | None] = {}
    ) -> None:
        """Let programs hold ``used`` bytes of a GPU, of which each of ``processes`` holds the given
        amount (None means unknown)."""
        reserved = 644_939_776
        total = total or int(self.answers[f"gpu.{gpu}.nvmlDeviceGetMemoryInfo"].split()[0])
        free = total - used - reserved
        listed = " ".join(
            f"{pid}:{'?' if size is None else size}" for pid, size in processes.items()
        )
        self.set(
            {
                f"gpu.{gpu}.nvmlDeviceGetMemoryInfo": f"{total} {free} {used + reserved}",
                f"gpu.{gpu}.nvmlDeviceGetMemoryInfo_v2": f"{total} {reserved} {free} {used}",
                f"gpu.{gpu}.nvmlDeviceGetComputeRunningProcesses": listed,
            }
        )

    def link(self, one: int, other: int | str, *, at: int = 0) -> None:
        """Connect link ``at`` of a GPU to another GPU, or to a "switch"."""
        self.answers[f"gpu.{one}.nvmlDeviceGetNvLinkState.{at}"] = "1"
        kind = f"gpu.{one}.nvmlDeviceGetNvLinkRemoteDeviceType.{at}"
        remote = "2"
        if isinstance(other, int):
            remote = "0"
            address = self.answers[f"gpu.{other}.nvmlDeviceGetPciInfo"]
            self.answers[f"gpu.{one}.nvmlDeviceGetNvLinkRemotePciInfo.{at}"] = address
        self.set({kind: remote})

    def partition(self, gpu: int, profiles: Iterable[str]) -> list[str]:
        """Put a GPU into MIG mode with slices such as "1g.18gb". Returns their UUIDs."""
        self.answers[f"gpu.{gpu}.nvmlDeviceGetMigMode"] = "1 1"
        self.answers[f"gpu.{gpu}.nvmlDeviceGetMaxMigDeviceCount"] = "7"
        for call in ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetProcessUtilization"):
            self.answers[f"gpu.{gpu}.{call}"] = f"error {NOT_SUPPORTED}"

        uuids = []
        name = self.answers[f"gpu.{gpu}.nvmlDeviceGetName"]
        for number, profile in enumerate(profiles):
            prefix = f"gpu.{gpu}.mig.{number}"
            uuid = f"MIG-{gpu:04}{number:04}-aaaa-bbbb-cccc-dddddddddddd"
            memory = int(profile.partition(".")[2].removesuffix("+me").removesuffix("gb")) * GIB
            self.answers |= {
                f"{prefix}.nvmlDeviceGetUUID": uuid,
                f"{prefix}.nvmlDeviceGetName": f"{name} MIG {profile}",
                f"{prefix}.nvmlDeviceGetMemoryInfo": f"{memory} {memory} 0",
                f"{prefix}.nvmlDeviceGetMemoryInfo_v2": f"{memory} 0 {memory} 0",
                f"{prefix}.nvmlDeviceGetComputeRunningProcesses": "",
                f"{prefix}.nvmlDeviceGetGraphicsRunningProcesses": "",
            }
            uuids.append(uuid)

        self.set({})
        return uuids

    def fail(self, key: str, code: int) -> None:
        """Make a call, all calls for a GPU (``gpu.N.*``) or all calls of the library (``*``) return
        an error."""
        self._faults[key] = f"error {code}"
        self.set({})

    def hang(self, key: str) -> None:
        """Make a call, or all calls for a GPU or of the library, hang until it is repaired."""
        self._faults[key] = "hang"
        self.set({})

    def repair(self, key: str) -> None:
        """End the effect of ``fail`` or ``hang``."""
        del self._faults[key]
        self.set({})

    def xid(self, gpu: int, number: int) -> None:
        """Report a critical error to the processes that have registered for it."""
        event = f"{next(self._events)}:{gpu}:{XID_EVENT}:{number}"
        self.set({"events": f"{self.answers.get('events', '')} {event}".strip()})

    def install_library(self, version: str) -> None:
        """Replace the library with another version, as a package manager does. Processes keep the
        version that they have loaded."""
        self.answers["library"] = version
        build(self.folder / LIBRARY)
        self.set({})

    def load_module(self, version: str) -> None:
        """Load the kernel module of another version, or none for ""."""
        self.set({"module": version, "nvmlSystemGetDriverVersion": version} if version else {})
        if not version:
            del self.answers["module"]
            self.set({})

    def set(self, answers: Mapping[str, str]) -> None:
        """Change answers, by the keys in `nvml.c`."""
        self.answers |= answers
        lines = [f"{key} = {value}\n" for key, value in (self.answers | self._faults).items()]
        temporary = self._script.with_suffix(".new")
        temporary.write_text("".join(lines))
        # The library rereads a file when its time stamp changes, and the kernel's own time stamps
        # are some milliseconds apart.
        os.utime(temporary, ns=(time.time_ns(), time.time_ns()))
        os.replace(temporary, self._script)


def build(target: Path) -> None:
    """Compile the library, or copy one that this process has compiled. The file is replaced
    atomically."""
    temporary = target.with_suffix(".new")
    shutil.copy(_compiled(), temporary)
    os.replace(temporary, target)


@cache
def _compiled() -> Path:
    program = compiler()
    assert program is not None, "the scripted NVML needs a C compiler: apt install gcc libc6-dev"
    source = FOLDER / "nvml.c"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    target = FOLDER.parents[1] / "build" / "nvml" / f"{digest}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_suffix(f".{os.getpid()}")
        soname = f"-Wl,-soname,{LIBRARY}"
        argv = [
            program,
            "-shared",
            "-fPIC",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            soname,
            "-pthread",
        ]
        subprocess.run([*argv, "-o", str(temporary), str(source)], check=True)
        os.replace(temporary, target)

    return target
