"""A known load on the first device: ``python torch_load.py SECONDS [MATRIX] [GIB]``.

Multiplies square matrices for that many seconds, holds GIB more, and prints its rate in TFLOP/s. It
runs as a kernel, with a Python that has torch, and imports nothing from Moorage. Without CUDA it
loads the CPU.
"""

from __future__ import annotations

import os
import sys
import time

import torch


def main(seconds: float, side: int, gib: float) -> None:
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    if not on_gpu:
        torch.set_num_threads(1)
        side = min(side, 512)

    kind = torch.bfloat16 if on_gpu else torch.float32
    left, right = (torch.randn(side, side, device=device, dtype=kind) for _ in range(2))
    held = torch.ones(int(gib * 2**30) if on_gpu else 1, dtype=torch.uint8, device=device)
    result = left @ right
    wait = torch.cuda.synchronize if on_gpu else (lambda: None)
    wait()
    print("loads", os.getpid(), "at", f"{time.time():.3f}", flush=True)
    started = time.monotonic()
    products = 0
    while time.monotonic() - started < seconds:
        for _ in range(50 if on_gpu else 1):
            torch.mm(left, right, out=result)

        wait()
        products += 50 if on_gpu else 1

    spent = time.monotonic() - started
    reserved = torch.cuda.memory_reserved() if on_gpu else 0
    rate = products * 2 * side**3 / spent / 1e12
    print(
        "did",
        f"{rate:.1f}",
        "TFLOP/s",
        "reserved",
        reserved,
        "at",
        f"{time.time():.3f}",
        flush=True,
    )
    del held


if __name__ == "__main__":
    given = [float(word) for word in sys.argv[1:]]
    main(given[0], int(given[1]) if len(given) > 1 else 8192, given[2] if len(given) > 2 else 0)
