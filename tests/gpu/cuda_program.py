"""CUDA program that needs only the driver: ``python cuda_program.py BYTES``.

Prints the devices that it sees, allocates BYTES on the first one and writes to all of them, prints ``holds``,
and sleeps until it is killed. It runs as a kernel and imports nothing of Moorage.
"""

from __future__ import annotations

import ctypes
import sys
import time
import uuid

_NO_DEVICE = 100


def main(size: int) -> None:
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: object) -> None:
        code = getattr(cuda, name)(*arguments)
        if code:
            sys.exit(f"{name}: CUDA error {code}")

    code = cuda.cuInit(0)
    count = ctypes.c_int(0)
    if code not in (0, _NO_DEVICE):
        sys.exit(f"cuInit: CUDA error {code}")
    if code == 0:
        call("cuDeviceGetCount", ctypes.byref(count))
    print("sees", count.value, *(_name(cuda, index) for index in range(count.value)), flush=True)
    if size and count.value:
        device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        call("cuDeviceGet", ctypes.byref(device), 0)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        call("cuCtxSetCurrent", context)
        call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
        call("cuMemsetD8_v2", memory, ctypes.c_ubyte(1), ctypes.c_size_t(size))
        call("cuCtxSynchronize")
        print("holds", size, flush=True)
    time.sleep(3600)


def _name(cuda: ctypes.CDLL, index: int) -> str:
    """The UUID as NVML writes it; for a slice the UUID of the slice."""
    device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    if cuda.cuDeviceGet(ctypes.byref(device), index) or cuda.cuDeviceGetUuid_v2(ctypes.byref(raw), device):
        return "?"
    return str(uuid.UUID(bytes=bytes(raw)))


if __name__ == "__main__":
    main(int(sys.argv[1]))
