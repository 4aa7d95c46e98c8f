"""The hub's cache on this machine: its location, and which snapshot of a model it has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

# OWNER/NAME in the hub's notation.
_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
DEFAULT_ENDPOINT = "https://huggingface.co"


def is_hub_id(model: str) -> bool:
    return _ID.fullmatch(model) is not None and ".." not in model and "--" not in model


@dataclass(frozen=True, slots=True)
class HubSettings:
    """Environment variables that huggingface-hub reads, with the same names and defaults."""

    endpoint: str
    cache: Path
    token: str
    offline: bool

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> HubSettings:
        cache_home = Path(env.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        home = Path(env.get("HF_HOME") or cache_home / "huggingface").expanduser()
        return cls(
            endpoint=(env.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/"),
            cache=Path(env.get("HF_HUB_CACHE") or home / "hub").expanduser(),
            token=env.get("HF_TOKEN")
            or _read_token(Path(env.get("HF_TOKEN_PATH") or home / "token")),
            offline=env.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"),
        )


def repository_folder(cache: Path, model: str) -> Path:
    return cache / f"models--{model.replace('/', '--')}"


def cached_snapshot(cache: Path, model: str, revision: str = "main") -> Path | None:
    """Directory with the model's files at this revision, complete or not; None if the cache has
    none."""
    folder = repository_folder(cache, model)
    try:
        commit = (folder / "refs" / revision).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        commit = revision

    if not commit or "/" in commit or commit.startswith("."):
        return None

    snapshot = folder / "snapshots" / commit
    return snapshot if snapshot.is_dir() else None


def weight_files(names: Iterable[str]) -> list[str]:
    """Files that an engine loads from a model stored in several formats. Safetensors take
    precedence over pickles, and transformers' sharded files over Mistral's own `consolidated`
    ones."""
    top = [name for name in names if "/" not in name]
    for suffix in (".safetensors", ".bin"):
        found = sorted(
            name for name in top if name.endswith(suffix) and not name.startswith("training_")
        )
        usual = [name for name in found if not name.startswith("consolidated")]
        if usual or found:
            return usual or found

    return []


def _read_token(path: Path) -> str:
    try:
        return path.expanduser().read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
