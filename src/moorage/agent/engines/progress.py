"""Progress of engines while they load, read from the end of their logs. Pure.

Only numbers from the log appear in the texts, because the log is for the session's user, while
everyone who can see the session sees its progress.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

Stages = Sequence[tuple[re.Pattern[str], str]]

# Newest stage first, in case a line matches several. tqdm updates its bars with carriage returns.
VLLM: Stages = (
    (re.compile(r"Application startup complete|Starting vLLM API server"), "warming up"),
    (re.compile(r"Capturing CUDA graph.*?(\d{1,3})%"), "warming up: capturing CUDA graphs, {}%"),
    (re.compile(r"Graph capturing finished|init engine .* took"), "warming up"),
    (
        re.compile(r"vLLM's torch\.compile|Dynamo bytecode transform|Compiling a graph"),
        "warming up: compiling",
    ),
    (
        re.compile(r"Model loading took|Loading weights took|Loading model weights took"),
        "loading weights: 100%",
    ),
    (re.compile(r"Loading \w+ checkpoint shards:\s*(\d{1,3})%"), "loading weights: {}%"),
    (re.compile(r"(?:\.safetensors|\.bin|\.gguf):\s*(\d{1,3})%\|"), "downloading: {}% of a file"),
    (re.compile(r"Fetching \d+ files:\s*(\d{1,3})%"), "downloading: {}% of the files"),
    (re.compile(r"Starting to load model|Loading model from scratch"), "loading weights"),
)
LLAMACPP: Stages = (
    (re.compile(r"warming up the model|load_model: initializing|model loaded"), "warming up"),
    (re.compile(r"load_tensors:|llama_model_loader:|loading model"), "loading weights"),
)
# llama.cpp prints a dot for each percent of the weights.
_DOTS = re.compile(r"\.{2,100}")


def read_progress(log_tail: str, stages: Stages) -> str:
    """The newest stage in the log, like ``loading weights: 50%``; empty if there is none."""
    for line in reversed(re.split(r"[\r\n]+", log_tail)):
        if stages is LLAMACPP and _DOTS.fullmatch(line.strip()):
            return f"loading weights: {len(line.strip())}%"
        for pattern, text in stages:
            if (found := pattern.search(line)) is not None:
                return text.format(*found.groups())
    return ""
