"""Affinity: requests with a common prefix or session go to the same replica, which has their shared
part in its cache. Pure.

Consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam, 2016): each key has an order
of all replicas, and takes the first one with room. No replica gets more than ``max_load`` times its
share of the requests in flight. The order depends only on the names (rendezvous hashing), so it is
the same in every proxy, and adding or removing a replica moves only the keys that it gains or
loses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from math import ceil

from moorage.common.link.messages import Target
from moorage.common.model.ids import KernelId

SESSION = "X-Moorage-Session"
"""The header that names a request's session."""
MAX_LOAD = 1.25
"""The default header for sessions."""
PREFIX_CHARS = 1024
_64 = (1 << 64) - 1


def key_of(session: str, document: Mapping[str, object]) -> int:
    """The key that decides where a request goes, from its session or else its prefix; 0 if it has
    neither."""
    text = session or prefix_of(document)
    return (_hash(text) or 1) if text else 0


def prefix_of(document: Mapping[str, object]) -> str:
    """The beginning of a prompt. For a chat, it is the part before the first answer, which stays
    the same while the chat continues."""
    parts: list[str] = []
    left = PREFIX_CHARS
    for part in _parts(document):
        parts.append(part[:left])
        left -= len(part)
        if left <= 0:
            break

    return "\0".join(parts)


def _parts(document: Mapping[str, object]) -> Iterator[str]:
    yield from _texts(document.get("instructions"))
    yield from _texts(document.get("system"))
    yield from _texts(document.get("prompt"))

    for name in ("messages", "input"):
        given = document.get(name)
        if not isinstance(given, list):
            yield from _texts(given)
            continue

        for message in given:
            if not isinstance(message, dict):
                yield from _texts(message)
                return
            if message.get("role") == "assistant":
                return

            yield from _texts(message.get("content"))


def _texts(content: object) -> Iterator[str]:
    """Yield a text, the texts in a message's parts, or the first prompt in a list."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, dict):
                text = part.get("text")
                if isinstance(text, str):
                    yield text
            else:
                yield str(part)[:PREFIX_CHARS]
                if isinstance(part, str):
                    return


def pick_affine(
    targets: Sequence[Target],
    key: int,
    max_load: float,
    in_flight: Mapping[KernelId, int],
    *,
    ejected: Mapping[KernelId, float],
    now: float,
) -> Target | None:
    """The first replica with room in the order of ``key``. None if there are no replicas, or if all
    are draining or ejected."""
    candidates = [t for t in targets if not t.draining and ejected.get(t.kernel_id, now) <= now]
    if not candidates:
        return None

    loads = [in_flight.get(t.kernel_id, 0) for t in candidates]
    most = ceil(max_load * (sum(loads) + 1) / len(candidates))
    with_room = [t for t, load in zip(candidates, loads, strict=True) if load < most]
    return max(with_room, key=lambda t: _score(_of_replica(t.kernel_id), key))


@lru_cache(maxsize=4096)
def _of_replica(kernel_id: KernelId) -> int:
    return _hash(kernel_id)


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def _score(replica: int, key: int) -> int:
    """Mix two hashes (the finalizer of splitmix64)."""
    x = ((replica ^ key) * 0xBF58476D1CE4E5B9) & _64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _64
    return x ^ (x >> 31)
