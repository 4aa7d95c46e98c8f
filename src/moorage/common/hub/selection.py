"""Selection of a model's files: which files of a repository an engine loads, and which are complete
here. Pure except for ``find_complete``.

``selector``: "" for a model in transformers format; for GGUF, the part after the colon, such as
``Q8_0``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from moorage.common.hub.cache import is_hub_id, repository_folder, weight_files

_OTHER_WEIGHTS = (
    *(
        ".safetensors",
        ".bin",
        ".pt",
        ".pth",
        ".h5",
        ".msgpack",
        ".onnx",
        ".gguf",
        ".ckpt",
        ".tflite",
        ".ot",
    ),
    *(".safetensors.index.json", ".bin.index.json"),
)
_SHARD = re.compile(r"(.*)-\d{5}-of-\d{5}\.gguf", re.IGNORECASE | re.DOTALL)
# llama.cpp's default selection.
_DEFAULT_QUANTIZATION = "Q4_K_M"


def split_id(model: str) -> tuple[str, str]:
    """Split ``OWNER/NAME[:SELECTOR]``, llama.cpp's notation for `-hf`, into ``OWNER/NAME`` and the
    selector."""
    name, _, selector = model.partition(":")
    return name, selector


def is_gguf_id(model: str) -> bool:
    """Return whether the id names a GGUF model on a hub: ``OWNER/NAME:SELECTOR`` or
    ``OWNER/NAME-GGUF``."""
    name, selector = split_id(model)
    return is_hub_id(name) and (bool(selector) or name.lower().endswith("-gguf"))


def transformers_files(names: Iterable[str]) -> list[str]:
    """Configuration, tokenizer, code, and the weights in one format; no other directories with
    weights."""
    names = list(names)
    weights = weight_files(names)
    index = f"{weights[0].rpartition('.')[2]}.index.json" if weights else ""

    return sorted(
        name
        for name in names
        if name in weights
        or (bool(index) and name.endswith(index) and "/" not in name)
        or not name.lower().endswith(_OTHER_WEIGHTS)
    )


def gguf_files(names: Iterable[str], selector: str) -> list[str]:
    """The file with this quantisation or name, with all its shards in order; empty if there is
    none.

    Without a selector, Q4_K_M is chosen if there is one, otherwise the first file, as llama.cpp
    does. Image projectors (`mmproj`) are not models.
    """
    found = sorted(
        name
        for name in names
        if name.lower().endswith(".gguf")
        and not name.rpartition("/")[2].lower().startswith("mmproj")
    )
    wanted = selector or _DEFAULT_QUANTIZATION
    first = next((name for name in found if name.lower() == wanted.lower()), None)
    first = first or next((name for name in found if _has_quantization(name, wanted)), None)
    if first is None and not selector and found:
        first = found[0]
    if first is None:
        return []

    shard = _SHARD.fullmatch(first)
    if shard is None:
        return [first]

    return [name for name in found if (other := _SHARD.fullmatch(name)) and other[1] == shard[1]]


def gguf_choices(names: Iterable[str]) -> list[str]:
    """The files to choose from, for an error message."""
    return sorted(name for name in names if name.lower().endswith(".gguf"))


def _has_quantization(name: str, wanted: str) -> bool:
    """Whether the name contains this quantization as a whole word: ``Q4_K`` does not match
    ``Q4_K_M``."""
    return (
        re.search(rf"(?<![A-Za-z0-9]){re.escape(wanted)}(?![A-Za-z0-9_])", name, re.IGNORECASE)
        is not None
    )


def marker(cache: Path, model: str, commit: str) -> Path:
    """Name of the file that lists a commit's complete files, by selector."""
    return repository_folder(cache, model) / ".moorage" / f"{commit}.json"


def read_marker(path: Path) -> dict[str, dict[str, int]]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def find_complete(cache: Path, model: str, revision: str = "main") -> Path | None:
    """Directory of a model that was completely fetched at this revision, or its first file for
    GGUF.

    No hub is contacted; a local model is used as it is."""
    name = split_id(model)[0]
    folder = repository_folder(cache, name)
    try:
        commit = (folder / "refs" / revision).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        commit = revision

    files: Mapping[str, int] = read_marker(marker(cache, name, commit)).get(selector_key(model), {})
    snapshot = folder / "snapshots" / commit
    try:
        complete = bool(files) and all(
            (snapshot / file).stat().st_size == size for file, size in files.items()
        )
    except OSError:
        complete = False

    if not complete:
        return None

    return snapshot / next(iter(files)) if is_gguf_id(model) else snapshot


def selector_key(model: str) -> str:
    return f"gguf:{split_id(model)[1].lower()}" if is_gguf_id(model) else "transformers"
