"""A CUDA program that needs only the driver.

``python cuda_program.py SIZE [--leave-child] [--fault] [--seconds N]``

SIZE is in bytes, or a share such as ``60%`` of the first device's memory. Prints the variable and
the devices that it sees and the free memory that it found, allocates SIZE, writes to all of it,
prints ``holds``, and sleeps until it is killed or N seconds have passed. With ``--leave-child`` a
child in its own session does that, and the program ends once the child holds its memory. With
``--fault`` it then writes to memory that it does not have, and the driver terminates it. Lines
begin with a word, and most end with the time.

It runs as a kernel and imports nothing from Moorage. With KIT_REHEARSE it needs no driver.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
import uuid

_NO_DEVICE = 100
_PRETENDED = 80 * 1024**3
# The driver compiles this.
_WILD_STORE = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry wild_store()
{
    .reg .b32 %value;
    .reg .b64 %address;
    mov.u32 %value, 1;
    mov.u64 %address, 4096;
    st.global.u32 [%address], %value;
    ret;
}
"""


def say(*words: object) -> None:
    print(*words, "at", f"{time.time():.3f}", flush=True)


class Driver:
    """CUDA's driver library."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        code = self._cuda.cuInit(0)
        count = ctypes.c_int(0)
        if code not in (0, _NO_DEVICE):
            sys.exit(f"cuInit: CUDA error {code}")
        if code == 0:
            self.call("cuDeviceGetCount", ctypes.byref(count))
        self.names = [self._name(index) for index in range(count.value)]

    def call(self, name: str, *arguments: object) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            say("error", code, name)
            sys.exit(f"{name}: CUDA error {code}")

    def open(self) -> tuple[int, int]:
        """Free and total memory of the first device."""
        device = ctypes.c_int()
        context = ctypes.c_void_p()
        free = ctypes.c_size_t()
        total = ctypes.c_size_t()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))

        return free.value, total.value

    def hold(self, size: int) -> None:
        memory = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
        self.call("cuMemsetD8_v2", memory, ctypes.c_ubyte(1), ctypes.c_size_t(size))
        self.call("cuCtxSynchronize")

    def fault(self) -> None:
        module = ctypes.c_void_p()
        function = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(_WILD_STORE))
        self.call(
            "cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(b"wild_store")
        )
        one = ctypes.c_uint(1)
        none = ctypes.c_uint(0)
        self.call("cuLaunchKernel", function, *[one] * 6, none, None, None, None)
        self.call("cuCtxSynchronize")

    def _name(self, index: int) -> str:
        """The UUID as NVML writes it; for a slice, the slice's UUID."""
        device = ctypes.c_int()
        raw = (ctypes.c_ubyte * 16)()
        if self._cuda.cuDeviceGet(ctypes.byref(device), index):
            return "?"
        if self._cuda.cuDeviceGetUuid_v2(ctypes.byref(raw), device):
            return "?"
        return str(uuid.UUID(bytes=bytes(raw)))


class NoDriver:
    """The variable determines which devices are visible, and memory is simulated."""

    def __init__(self) -> None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        self.names = [name.removeprefix("GPU-") for name in visible.split(",") if name]

    def open(self) -> tuple[int, int]:
        return _PRETENDED, _PRETENDED

    def hold(self, size: int) -> None:
        self._held = bytearray(1 << 20)

    def fault(self) -> None:
        sys.exit("no driver, no fault")


def main(size: str, leave_child: bool, fault: bool, seconds: float) -> None:
    say("starts", os.getpid())
    say("variable", os.environ.get("CUDA_VISIBLE_DEVICES", "unset") or "empty")
    if leave_child:
        read, write = os.pipe()
        if os.fork():
            os.close(write)
            os.read(read, 1)
            say("leaves", "a", "child")
            return

        os.setsid()
        run(size, seconds, holds=write)
    else:
        run(size, seconds, fault=fault)


def run(size: str, seconds: float, *, holds: int = -1, fault: bool = False) -> None:
    driver = NoDriver() if os.environ.get("KIT_REHEARSE") else Driver()
    print("sees", len(driver.names), *driver.names, flush=True)
    if size != "0" and driver.names:
        free, total = driver.open()
        say("free", free, "of", total)
        wanted = total * int(size[:-1]) // 100 if size.endswith("%") else int(size)
        driver.hold(wanted)
        say("holds", wanted)
        if fault:
            driver.fault()

    if holds >= 0:
        os.write(holds, b"1")

    time.sleep(seconds)


if __name__ == "__main__":
    words = sys.argv[1:]
    limit = float(words[words.index("--seconds") + 1]) if "--seconds" in words else 3600.0
    main(words[0], "--leave-child" in words, "--fault" in words, limit)
