"""Program that fetches a model into this node's hub cache.

Run as ``python -P download.py MODEL REVISION [UMASK]``.

It prints lines of JSON: ``{"done": bytes, "total": bytes}`` during the download, then ``{"path":
...}``, or ``{"error": ..., "reason": ...}`` with exit status 1. It runs in a separate process
because huggingface-hub uses much memory, and so that a download can be stopped at any moment. It
exits when its standard input ends.

Large files are fetched here into a partial file that the next run continues, because
huggingface-hub has restarted downloads from the beginning since 1.18. huggingface-hub then finds
the files in its cache and does the rest: small files, links, references.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.common.hub.cache import HubSettings, repository_folder
from moorage.common.hub.selection import (
    gguf_choices,
    gguf_files,
    is_gguf_id,
    marker,
    read_marker,
    selector_key,
    split_id,
    transformers_files,
)

_LARGE = 8 * 1024 * 1024
_CHUNK = 4 * 1024 * 1024
# Attempts in a row without new data, and the first pause between two attempts. Later pauses are
# longer.
_ATTEMPTS = 5
_PAUSE_S = 1.0
# huggingface-hub's partial files that have not been written to for this long belong to killed
# downloads.
_ORPHAN_S = 24 * 3600
# Space to leave free on disk.
_SPARE = 1024**3


_agent_ended = threading.Event()


class DownloadFailed(Exception):
    def __init__(self, message: str, reason: str = "model-missing") -> None:
        self.reason = reason
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file on the hub. ``sha256``: a large file's checksum; empty for other files."""

    name: str
    size: int
    sha256: str


def main() -> int:
    model, revision, *umasks = sys.argv[1:]
    if umasks:
        os.umask(int(umasks[0], 8))

    threading.Thread(target=_exit_with_agent, daemon=True).start()
    hub = HubSettings.from_environment(os.environ)
    try:
        with _locked(hub.cache, split_id(model)[0]):
            path = fetch(hub, model, revision)
    except DownloadFailed as error:
        _print({"error": str(error), "reason": error.reason})
        return 1

    _print({"path": str(path)})
    return 0


def _exit_with_agent() -> None:
    """Exit when standard input, a pipe from the agent, ends, so that the agent's next run does not
    wait for the lock that this program holds."""
    while os.read(0, 1):  # the interpreter's exit needs the lock of `sys.stdin`
        pass
    _agent_ended.set()
    os._exit(1)


def fetch(hub: HubSettings, model: str, revision: str) -> Path:
    """The model's directory, or its first file for GGUF. Raises ``DownloadFailed``."""
    name = split_id(model)[0]
    listed = _list(hub, name, revision)
    if listed is None:
        return _from_cache(hub, model, revision)

    commit, files = listed
    chosen = _choose(model, files)
    total = sum(file.size for file in chosen)
    blobs = repository_folder(hub.cache, name) / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    _sweep(blobs)
    missing = [file for file in chosen if not (blobs / file.sha256).exists() or not file.sha256]
    _check_disk(hub.cache, missing, blobs)
    done = total - sum(file.size for file in missing)
    report = _Report(total)
    for file in missing:
        if file.sha256 and file.size >= _LARGE:
            # The default argument binds the current amount.
            _fetch_large(
                name,
                commit,
                file=file,
                blobs=blobs,
                report=lambda here, base=done: report(base + here),  # type: ignore[misc]
            )
            done += file.size

    snapshot = _finish(hub, name, revision, [file.name for file in chosen])
    report(total)
    _mark(hub.cache, model, snapshot.name, chosen)
    return snapshot / chosen[0].name if is_gguf_id(model) else snapshot


def _list(hub: HubSettings, name: str, revision: str) -> tuple[str, list[RemoteFile]] | None:
    """List the model's files. None means that the hub cannot be reached."""
    import httpx2
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if hub.offline:
        return None

    try:
        info = HfApi().model_info(name, revision=revision, files_metadata=True, timeout=30)
    except OfflineModeIsEnabled:
        return None
    except GatedRepoError:
        raise DownloadFailed(
            f"{name} needs the consent of its owner: accept its terms, and pass HF_TOKEN"
        ) from None
    except RevisionNotFoundError:
        raise DownloadFailed(
            f"{name} has no revision {revision!r} on the hub at {hub.endpoint}"
        ) from None
    except RepositoryNotFoundError:
        raise DownloadFailed(
            f"the hub at {hub.endpoint} has no {name}, or shows it only with another HF_TOKEN"
        ) from None
    except HfHubHTTPError as error:
        raise DownloadFailed(
            f"the hub at {hub.endpoint} refuses {name}: {_one_line(error)}"
        ) from None
    except (httpx2.HTTPError, OSError) as error:  # the cache may suffice without the hub
        _print({"note": f"the hub at {hub.endpoint} does not answer: {_one_line(error)}"})
        return None

    return str(info.sha or revision), [
        RemoteFile(
            sibling.rfilename,
            int(sibling.size or 0),
            str(sibling.lfs.sha256) if sibling.lfs else "",
        )
        for sibling in info.siblings or []
    ]


def _from_cache(hub: HubSettings, model: str, revision: str) -> Path:
    """The model in the cache, for when the hub cannot confirm that it is complete."""
    from moorage.common.hub.cache import cached_snapshot, weight_files

    snapshot = cached_snapshot(hub.cache, split_id(model)[0], revision)
    names = [] if snapshot is None else [str(p.relative_to(snapshot)) for p in snapshot.rglob("*")]
    found = gguf_files(names, split_id(model)[1]) if is_gguf_id(model) else weight_files(names)
    if snapshot is None or not found or any(not (snapshot / name).exists() for name in found):
        why = (
            "HF_HUB_OFFLINE is set" if hub.offline else f"the hub at {hub.endpoint} does not answer"
        )
        raise DownloadFailed(f"{why}, and the cache {hub.cache} has no {model}")

    return snapshot / found[0] if is_gguf_id(model) else snapshot


def _choose(model: str, files: list[RemoteFile]) -> list[RemoteFile]:
    names = {file.name: file for file in files}
    if not is_gguf_id(model):
        return [names[name] for name in transformers_files(names)]

    name, selector = split_id(model)
    found = gguf_files(names, selector)
    if not found:
        choices = ", ".join(gguf_choices(names)[:20]) or "none"
        raise DownloadFailed(
            f"{name} has no GGUF file for {selector or 'any quantisation'!r}; it has {choices}"
        )

    return [names[file_name] for file_name in found]


def _check_disk(cache: Path, missing: list[RemoteFile], blobs: Path) -> None:
    partial = sum(_size(_partial(blobs, file)) for file in missing if file.sha256)
    needed = sum(file.size for file in missing) - partial
    free = shutil.disk_usage(cache).free
    if needed > 0 and needed + _SPARE > free:
        raise DownloadFailed(
            f"the download needs {needed} bytes, and {cache} has {free} free", "disk-full"
        )


def _partial(blobs: Path, file: RemoteFile) -> Path:
    return blobs / f"{file.sha256}.moorage-partial"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _fetch_large(
    name: str, commit: str, file: RemoteFile, blobs: Path, *, report: Callable[[int], None]
) -> None:
    """Fetch a file into the cache, continuing an earlier run. Raises ``DownloadFailed``."""
    from huggingface_hub import hf_hub_url

    partial = _partial(blobs, file)
    url = hf_hub_url(name, file.name, revision=commit)
    digest = hashlib.sha256()
    failures = 0
    error = ""
    with partial.open("a+b") as out:
        have = _read_digest(out, digest, file.size)
        while have < file.size and failures < _ATTEMPTS:
            before = have
            try:
                for piece in _stream(url, have):
                    out.write(piece)
                    digest.update(piece)
                    have += len(piece)
                    report(have)
            except _StreamFailed as failed:
                error = str(failed)
            except OSError as failed:
                raise DownloadFailed(
                    f"cannot write {partial}: {failed.strerror}", "disk-full"
                ) from None

            out.flush()
            failures = 0 if have > before else failures + 1
            if failures:
                _agent_ended.wait(_PAUSE_S * failures)

        os.fsync(out.fileno())

    if have < file.size:
        raise DownloadFailed(
            f"the download of {file.name} stopped after {have} of {file.size} bytes: {error}"
        )

    if digest.hexdigest() != file.sha256:
        partial.unlink()
        raise DownloadFailed(f"{file.name} does not match the hub's checksum; it was deleted")

    partial.replace(blobs / file.sha256)


def _read_digest(out: Any, digest: Any, size: int) -> int:
    """The digest of the bytes that an earlier run left behind, at most the size of the file."""
    out.seek(0, os.SEEK_END)
    if out.tell() > size:
        out.truncate(0)
    out.seek(0)
    while piece := out.read(_CHUNK):
        digest.update(piece)
    return int(out.tell())


class _StreamFailed(Exception):
    pass


def _stream(url: str, start: int) -> Iterator[bytes]:
    """Yield the bytes from ``start``. Raises ``_StreamFailed``."""
    import httpx2
    from huggingface_hub import get_session
    from huggingface_hub.utils import build_hf_headers

    headers = build_hf_headers() | ({"Range": f"bytes={start}-"} if start else {})
    try:
        # `http_stream_backoff` is not used because it mistakes an interruption in the body for one
        # before the head.
        with get_session().stream(
            "GET", url, headers=headers, follow_redirects=True, timeout=60
        ) as response:
            if response.status_code != (206 if start else 200):
                raise _StreamFailed(f"the hub answered {response.status_code}")
            yield from response.iter_bytes(1024 * 1024)
    except (httpx2.HTTPError, OSError) as error:
        raise _StreamFailed(_one_line(error)) from None


def _finish(hub: HubSettings, name: str, revision: str, files: list[str]) -> Path:
    """Let huggingface-hub create the snapshot with these files. Large ones are already in its
    cache."""
    import httpx2
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    try:
        # Escape brackets and stars, which would otherwise be patterns.
        patterns = ["".join(f"[{c}]" if c in "*?[" else c for c in file) for file in files]
        return Path(
            snapshot_download(name, revision=revision, cache_dir=hub.cache, allow_patterns=patterns)
        )
    except OSError as error:
        if getattr(error, "errno", None) is not None and error.filename:
            raise DownloadFailed(
                f"cannot write {error.filename}: {error.strerror}", "disk-full"
            ) from None
        raise DownloadFailed(f"the download of {name} failed: {_one_line(error)}") from None
    except (httpx2.HTTPError, ValueError) as error:
        raise DownloadFailed(f"the download of {name} failed: {_one_line(error)}") from None


def _mark(cache: Path, model: str, commit: str, files: list[RemoteFile]) -> None:
    path = marker(cache, split_id(model)[0], commit)
    path.parent.mkdir(exist_ok=True)
    known = read_marker(path) | {selector_key(model): {file.name: file.size for file in files}}
    new = path.with_suffix(".new")
    new.write_text(json.dumps(known))
    new.replace(path)


def _sweep(blobs: Path) -> None:
    """Remove what killed downloads of huggingface-hub have left behind, judging its age by the file
    system's clock."""
    os.utime(blobs)
    now = blobs.stat().st_mtime
    for path in blobs.glob("*.incomplete"):
        try:
            if now - path.stat().st_mtime > _ORPHAN_S:
                path.unlink()
        except OSError:
            continue


@contextmanager
def _locked(cache: Path, name: str) -> Iterator[None]:
    """Lock a model, so that this node runs one download of it at a time. A second download then
    finds it in the cache."""
    folder = cache / ".locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / f"moorage--{name.replace('/', '--')}.lock").open("w")
    except OSError as error:
        raise DownloadFailed(
            f"cannot write to the cache {cache}: {error.strerror}", "disk-full"
        ) from None

    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class _Report:
    """A reporter that prints each full percent once."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._percent = -1

    def __call__(self, done: int) -> None:
        percent = 100 * done // max(1, self._total)
        if percent != self._percent:
            self._percent = percent
            _print({"done": done, "total": self._total})


def _one_line(error: Exception) -> str:
    return " ".join((str(error) or type(error).__name__).split())[:300]


def _print(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main())
