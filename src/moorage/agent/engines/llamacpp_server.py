"""Server program of the llama.cpp engine: ``python -P llamacpp_server.py --model FILE ...``.

It serves one model with llama.cpp's own OpenAI server. It runs as a file and imports none of our
modules, so that it starts as fast as llama.cpp does. The API key comes from the environment
(``MOORAGE_SECRET``). Exit status 2 means that the arguments or the model file are invalid; standard
error says why.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROMPT_CACHE_MIB = 256  # llama.cpp's default of 8 GiB exceeds the memory of most kernels
IDLE_TIMEOUT_S = 600


@dataclass(frozen=True)
class Option:
    """A llama-server option: its names, the parameter that it sets, and how it sets it. ``value``:
    the value that a flag assigns to its parameter. ``enum``: the prefix of an enumeration's
    members, one of which the argument names."""

    names: str
    parameter: str
    type: Callable[[str], Any] | None = None
    value: Any = None
    enum: str = ""


def _flag(names: str, parameter: str, value: bool = True) -> Option:
    return Option(names, parameter, value=value)


def floats(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def whole_file(text: str) -> str:
    try:
        return Path(text).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"cannot read {text}: {error}") from None


def template_values(text: str) -> dict[str, str]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object")
    return {name: json.dumps(value) for name, value in found.items()}


# llama-server's options (from its README) for a server with one model. Moorage sets the server's
# address, name and key.
OPTIONS = (
    Option("-n --predict --n-predict", "n_predict", int),
    Option("-b --batch-size", "n_batch", int),
    Option("-ub --ubatch-size", "n_ubatch", int),
    Option("--keep", "n_keep", int),
    Option("-tb --threads-batch", "cpuparams_batch.n_threads", int),
    Option("--threads-http", "n_threads_http", int),
    _flag("--swa-full", "swa_full"),
    Option("-fa --flash-attn", "flash_attn_type", enum="LLAMA_FLASH_ATTN_TYPE_"),
    _flag("--perf", "no_perf", False),
    _flag("--no-perf", "no_perf"),
    Option("--rope-scaling", "rope_scaling_type", enum="LLAMA_ROPE_SCALING_TYPE_"),
    Option("--rope-freq-base", "rope_freq_base", float),
    Option("--rope-freq-scale", "rope_freq_scale", float),
    Option("--yarn-orig-ctx", "yarn_orig_ctx", int),
    Option("--yarn-ext-factor", "yarn_ext_factor", float),
    Option("--yarn-attn-factor", "yarn_attn_factor", float),
    Option("--yarn-beta-slow", "yarn_beta_slow", float),
    Option("--yarn-beta-fast", "yarn_beta_fast", float),
    _flag("-kvo --kv-offload", "no_kv_offload", False),
    _flag("-nkvo --no-kv-offload", "no_kv_offload"),
    _flag("--op-offload", "no_op_offload", False),
    _flag("--no-op-offload", "no_op_offload"),
    Option("-ctk --cache-type-k", "cache_type_k", enum="GGML_TYPE_"),
    Option("-ctv --cache-type-v", "cache_type_v", enum="GGML_TYPE_"),
    Option("--mlock", "load_mode", value="LLAMA_LOAD_MODE_MMAP_MLOCK"),
    Option("--mmap", "load_mode", value="LLAMA_LOAD_MODE_MMAP"),
    Option("--no-mmap", "load_mode", value="LLAMA_LOAD_MODE_NONE"),
    Option("--numa", "numa", enum="GGML_NUMA_STRATEGY_"),
    Option("-sm --split-mode", "split_mode", enum="LLAMA_SPLIT_MODE_"),
    Option("-ts --tensor-split", "tensor_split", floats),
    Option("-mg --main-gpu", "main_gpu", int),
    _flag("--check-tensors", "check_tensors"),
    _flag("--warmup", "warmup"),
    _flag("--no-warmup", "warmup", False),
    Option("--ctx-checkpoints --swa-checkpoints", "n_ctx_checkpoints", int),
    Option("-cram --cache-ram", "cache_ram_mib", int),
    _flag("-kvu --kv-unified", "kv_unified"),
    _flag("-no-kvu --no-kv-unified", "kv_unified", False),
    _flag("--context-shift", "ctx_shift"),
    _flag("--no-context-shift", "ctx_shift", False),
    _flag("-cb --cont-batching", "cont_batching"),
    _flag("-nocb --no-cont-batching", "cont_batching", False),
    Option("--pooling", "pooling_type", enum="LLAMA_POOLING_TYPE_"),
    _flag("--cache-prompt", "cache_prompt"),
    _flag("--no-cache-prompt", "cache_prompt", False),
    Option("--cache-reuse", "n_cache_reuse", int),
    Option("--slot-save-path", "slot_save_path", str),
    Option("-sps --slot-prompt-similarity", "slot_prompt_similarity", float),
    _flag("--props", "endpoint_props"),
    Option("-mm --mmproj", "mmproj.path", str),
    _flag("--no-mmproj", "no_mmproj"),
    _flag("--mmproj-offload", "mmproj_use_gpu"),
    _flag("--no-mmproj-offload", "mmproj_use_gpu", False),
    Option("--image-min-tokens", "image_min_tokens", int),
    Option("--image-max-tokens", "image_max_tokens", int),
    _flag("--jinja", "use_jinja"),
    _flag("--no-jinja", "use_jinja", False),
    Option("--chat-template", "chat_template", str),
    Option("--chat-template-file", "chat_template", whole_file),
    Option("--chat-template-kwargs", "default_template_kwargs", template_values),
    Option("--reasoning-format", "reasoning_format", enum="COMMON_REASONING_FORMAT_"),
    _flag("--prefill-assistant", "prefill_assistant"),
    _flag("--no-prefill-assistant", "prefill_assistant", False),
    Option("-lv --verbosity --log-verbosity", "verbosity", int),
    Option("-s --seed", "sampling.seed", int),
    Option("--temp --temperature", "sampling.temp", float),
    Option("--top-k", "sampling.top_k", int),
    Option("--top-p", "sampling.top_p", float),
    Option("--min-p", "sampling.min_p", float),
    Option("--typical --typical-p", "sampling.typ_p", float),
    Option("--xtc-probability", "sampling.xtc_probability", float),
    Option("--xtc-threshold", "sampling.xtc_threshold", float),
    Option("--repeat-last-n", "sampling.penalty_last_n", int),
    Option("--repeat-penalty", "sampling.penalty_repeat", float),
    Option("--presence-penalty", "sampling.penalty_present", float),
    Option("--frequency-penalty", "sampling.penalty_freq", float),
    Option("--dry-multiplier", "sampling.dry_multiplier", float),
    Option("--dry-base", "sampling.dry_base", float),
    Option("--dry-allowed-length", "sampling.dry_allowed_length", int),
    Option("--dry-penalty-last-n", "sampling.dry_penalty_last_n", int),
    Option("--dynatemp-range", "sampling.dynatemp_range", float),
    Option("--dynatemp-exp", "sampling.dynatemp_exponent", float),
    Option("--mirostat", "sampling.mirostat", int),
    Option("--mirostat-lr", "sampling.mirostat_eta", float),
    Option("--mirostat-ent", "sampling.mirostat_tau", float),
    _flag("--ignore-eos", "sampling.ignore_eos"),
)
# llama-server's names that differ from the enumeration's members.
_ENUM_WORDS = {"on": "enabled", "off": "disabled"}


def parse(argv: Sequence[str], cores: int) -> argparse.Namespace:
    """Parse the arguments. The result's ``others`` holds the values of the ``OPTIONS``, by
    parameter. Raises ``SystemExit`` (2) after printing the error."""
    parser = argparse.ArgumentParser(
        prog="llamacpp", description="Serve one GGUF model with llama.cpp.", allow_abbrev=False
    )
    parser.add_argument("--model", required=True, type=Path, help="a GGUF file")
    parser.add_argument("--alias", required=True, help="the `model` that clients send")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", required=True, type=_non_negative)
    parser.add_argument(
        "-c",
        "--ctx-size",
        type=_non_negative,
        default=0,
        help="tokens, shared by all slots; 0 means the model's own",
    )
    parser.add_argument("-np", "--parallel", type=_positive, default=4, help="concurrent requests")
    parser.add_argument("-t", "--threads", type=_positive, default=max(1, cores // 2))
    parser.add_argument(
        *("-ngl", "--gpu-layers", "--n-gpu-layers"),
        dest="n_gpu_layers",
        type=int,
        default=-1,
        help="layers on the GPU; -1 means as many as fit",
    )
    parser.add_argument(
        "--embedding", "--embeddings", action="store_true", help="serve embeddings instead of text"
    )
    parser.add_argument(
        "--rerank", "--reranking", action="store_true", help="serve rerank instead of text"
    )
    parser.add_argument(
        "--lora", action="append", default=[], help="a file with a LoRA adapter; repeatable"
    )
    others = parser.add_argument_group("of llama-server")
    for option in OPTIONS:
        names = option.names.split()
        dest = f"set {option.parameter}"
        if option.value is not None:
            others.add_argument(
                *names, dest=dest, action="store_const", const=option.value, default=None
            )
        else:
            others.add_argument(*names, dest=dest, type=option.type or str, default=None)

    found = parser.parse_args(argv)
    given = {
        dest.removeprefix("set "): value
        for dest, value in vars(found).items()
        if dest[:4] == "set "
    }
    found.others = {parameter: value for parameter, value in given.items() if value is not None}
    return found


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
    """Return why this cannot be a model file, or "" if it can be."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        return f"cannot read the model {path}: {error.strerror}"

    return (
        ""
        if magic == b"GGUF"
        else f"{path} is not a GGUF file: it starts with {magic!r}, not with b'GGUF'"
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
    params.embedding = options.embedding or options.rerank
    if options.rerank:
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_RANK

    threads = min(options.threads, cores)
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.endpoint_metrics = True
    params.endpoint_slots = True
    params.ui = False
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.timeout_read = IDLE_TIMEOUT_S
    params.lora_adapters = [_adapter(xllamacpp, path) for path in options.lora]
    if key:
        params.api_keys = [key]

    for parameter, value in options.others.items():
        _set(params, parameter, value)

    return params


def _adapter(xllamacpp: Any, path: str) -> Any:
    adapter = xllamacpp.CommonAdapterLoraInfo()
    adapter.path = path
    adapter.scale = 1.0
    return adapter


def _set(params: Any, parameter: str, value: Any) -> None:
    """Set a parameter. Raises ``ValueError`` for a word that the parameter does not accept."""
    *path, name = parameter.split(".")
    for part in path:
        params = getattr(params, part)

    enumeration = type(getattr(params, name))
    if not hasattr(enumeration, "__members__"):
        if isinstance(value, list):  # the length is fixed, and the rest is 0
            value = value + [0.0] * (len(getattr(params, name)) - len(value))

        setattr(params, name, value)
        return

    option = next(option for option in OPTIONS if option.parameter == parameter)
    word = _ENUM_WORDS.get(value, value)
    members = {key.removeprefix(option.enum).lower(): key for key in enumeration.__members__}
    member = value if value in enumeration.__members__ else members.get(word.lower())
    if member is None:
        raise ValueError(
            f"argument {option.names.split()[-1]}: {value!r} is none of {', '.join(members)}"
        )

    setattr(params, name, enumeration[member])


def main(argv: Sequence[str]) -> int:
    cores = len(os.sched_getaffinity(0))
    options = parse(argv, cores)
    if problem := find_problem(options.model):
        print(f"llamacpp: {problem}", file=sys.stderr)
        return 2

    try:
        import xllamacpp
    except ImportError as error:
        # The llama.cpp wheel needs libgomp from the system.
        lacks_library = "cannot open shared object" in str(error)
        step = "apt install libgomp1" if lacks_library else "pip install 'moorage[llamacpp]'"
        print(f"llamacpp: {error}; install it with: {step}", file=sys.stderr)
        return 2

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())

    try:
        params = parameters(xllamacpp, options, os.environ.get("MOORAGE_SECRET", ""), cores)
    except ValueError as error:
        print(f"llamacpp: {error}", file=sys.stderr)
        return 2

    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        print(
            f"llamacpp: cannot serve {options.model}: {error} See the lines above.",
            file=sys.stderr,
        )
        return 2

    print(
        f"llamacpp: serving {options.alias} at {server.listening_address}",
        file=sys.stderr,
        flush=True,
    )
    stop.wait()
    del server  # stops it
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
