"""Server program of the llama.cpp engine: ``python -P llamacpp_server.py --model FILE ...``.

It serves one model with llama.cpp's own OpenAI server. It runs as a file and imports nothing of ours, so that
it starts as fast as llama.cpp does. The API key comes from the environment (``MOORAGE_SECRET``). Exit status
2 means that the arguments or the model file are invalid; standard error says why.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROMPT_CACHE_MIB = 256  # llama.cpp's default of 8 GiB exceeds the memory of most kernels
IDLE_TIMEOUT_S = 600


def parse(argv: Sequence[str], cores: int) -> argparse.Namespace:
    """Raises ``SystemExit`` (2) after printing the error."""
    parser = argparse.ArgumentParser(
        prog="llamacpp", description="Serve one GGUF model with llama.cpp.", allow_abbrev=False
    )
    parser.add_argument("--model", required=True, type=Path, help="a GGUF file")
    parser.add_argument("--alias", required=True, help="the `model` that clients send")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", required=True, type=_non_negative)
    parser.add_argument(
        "--ctx-size", type=_non_negative, default=0, help="tokens, shared by all slots; 0: the model's own"
    )
    parser.add_argument("--parallel", type=_positive, default=4, help="concurrent requests")
    parser.add_argument("--threads", type=_positive, default=max(1, cores // 2))
    parser.add_argument("--n-gpu-layers", type=int, default=-1, help="layers on the GPU; -1: as many as fit")
    parser.add_argument("--embedding", action="store_true", help="serve embeddings instead of text")
    return parser.parse_args(argv)


def _non_negative(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is not 0 or more")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not 1 or more")
    return value


def find_problem(path: Path) -> str:
    """Return why this cannot be a model file; "" if it can."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        return f"cannot read the model {path}: {error.strerror}"
    return (
        "" if magic == b"GGUF" else f"{path} is not a GGUF file: it begins with {magic!r}, not with b'GGUF'"
    )


def parameters(xllamacpp: Any, options: argparse.Namespace, key: str, cores: int) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = str(options.model)
    params.model_alias = {options.alias}
    params.hostnames = [options.host]
    params.port = options.port
    params.n_ctx = options.ctx_size
    params.n_parallel = options.parallel
    params.kv_unified = True  # a single request may use the whole context
    params.n_gpu_layers = options.n_gpu_layers
    params.embedding = options.embedding
    threads = min(options.threads, cores)
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.endpoint_metrics = True
    params.endpoint_slots = True
    params.ui = False
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.timeout_read = IDLE_TIMEOUT_S
    if key:
        params.api_keys = [key]
    return params


def main(argv: Sequence[str]) -> int:
    cores = len(os.sched_getaffinity(0))
    options = parse(argv, cores)
    if problem := find_problem(options.model):
        print(f"llamacpp: {problem}", file=sys.stderr)
        return 2
    try:
        import xllamacpp
    except ImportError as error:
        print(f"llamacpp: {error}; install it with: pip install 'moorage[llamacpp]'", file=sys.stderr)
        return 2
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        server = xllamacpp.Server(parameters(xllamacpp, options, os.environ.get("MOORAGE_SECRET", ""), cores))
    except RuntimeError as error:
        print(f"llamacpp: cannot serve {options.model}: {error} The lines above say why.", file=sys.stderr)
        return 2
    print(f"llamacpp: serving {options.alias} at {server.listening_address}", file=sys.stderr, flush=True)
    stop.wait()
    del server  # stops it
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
