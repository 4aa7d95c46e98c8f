"""Priority of requests: the key's class, and how it is passed to an engine. Pure.

Higher numbers go first, as for sessions. vLLM serves lower numbers first, with 0 as the default, so
it gets the difference from our default.
"""

from __future__ import annotations

from typing import Final

from moorage.common.link.messages import KeyGrant
from moorage.proxy.core.body_model import spliced

DEFAULT: Final = 10
PRIORITIZED_PATHS: Final = ("/v1/chat/completions", "/v1/completions")


def priority_of(key: KeyGrant | None) -> int:
    """The priority from the key and its project, 0 to 100."""
    return DEFAULT if key is None or key.priority is None else key.priority


def with_priority(body: bytes, priority: int) -> bytes:
    """Return ``body``, a JSON object with at least one member, with ``priority`` for vLLM added as
    the last one.

    The other bytes stay unchanged. If the client has sent its own ``priority``, the object then has
    two. vLLM uses the last one, like every reader based on Python's json.
    """
    end = body.rindex(b"}")
    return spliced(body, end, end, b',"priority":%d' % (DEFAULT - priority))
