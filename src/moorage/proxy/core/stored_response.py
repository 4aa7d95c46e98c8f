"""Stored response: its relation to a request, and the id with which any proxy finds its replica.
Pure.

vLLM takes a response's id from the request (``request_id``). So the proxy assigns an id that names
the replica and is signed for the owner with the replica's key, which only the proxies know. Any
proxy can find such a response while its replica lives, without communication between proxies, and
the signature does not match for another owner. Other engines' responses are known only to the proxy
that saw them (``response_homes``). Decision 28 discusses the alternatives.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable

from moorage.common.link.messages import Target
from moorage.common.model.ids import KernelId
from moorage.proxy.core.admission import BodyRequired, Forward
from moorage.proxy.core.apis import RESPONSES
from moorage.proxy.core.body_model import spliced
from moorage.proxy.core.limits.limiter import Observer
from moorage.proxy.core.response_homes import Home, ResponseHomes, ResponseReader, owner_of
from moorage.proxy.core.routes import IndexedTable

_NAMING_ENGINES = frozenset({"vllm"})
_LONGEST = 128
_ID = re.compile(
    r"(?a:resp_(?P<kernel>[\w-]{1,64})\.(?P<rest>[0-9a-f]{16}[bf])\.(?P<signature>[0-9a-f]{32}))"
)


def make_id(target: Target, owner: str, nonce: int, *, is_background: bool) -> str:
    """Create an id. ``nonce``: a random number below 2 to the 64th."""
    rest = f"{nonce:016x}{'b' if is_background else 'f'}"
    return f"resp_{target.kernel_id}.{rest}.{_sign(target, rest, owner)}"


def named_home(response_id: str, owner: str, table: IndexedTable) -> Home | None:
    """The replica in an id; None if it names none or belongs to another owner. A background
    response's tokens are counted by each proxy that reports its end."""
    found = _ID.fullmatch(response_id)
    if (
        found is None
        or (model := table.kernels.get(kernel_id := KernelId(found["kernel"]))) is None
    ):
        return None

    target = next(target for target in table.models[model].targets if target.kernel_id == kernel_id)
    if not target.key or not hmac.compare_digest(
        _sign(target, found["rest"], owner), found["signature"]
    ):
        return None

    return Home(model, kernel_id, is_counted=found["rest"].endswith("f"))


def _sign(target: Target, rest: str, owner: str) -> str:
    message = f"response {target.kernel_id}.{rest} {owner}".encode("utf-8", "surrogatepass")
    return hmac.digest(target.key.encode(), message, "sha256").hex()[:32]


class StoredResponse:
    """A request's relation to a stored response, which it creates or refers to.

    ``repeats``: the answer repeats tokens that have already been counted. ``reads_id``: the answer
    contains an id to remember.
    """

    __slots__ = ("_is_background", "_is_named", "_owner", "reads_id", "repeats")

    def __init__(self, head: BodyRequired, forward: Forward) -> None:
        document = forward.document
        home = forward.home
        is_new = not head.response_id
        self._owner = owner_of(head.key)
        self.repeats = not is_new and home is not None and home.is_counted
        self._is_background = not is_new or document.get("background") is True
        self.reads_id = document.get("store") is not False if is_new else not self.repeats
        self._is_named = is_new and forward.path == RESPONSES

    def named(self, body: bytes, target: Target, randrange: Callable[[int], int]) -> bytes:
        """``body`` with ``request_id`` added as the last member if the engine takes the response's
        id from it. It takes precedence over the client's."""
        if not self._is_named or target.engine not in _NAMING_ENGINES or not target.key:
            return body
        name = make_id(target, self._owner, randrange(1 << 63), is_background=self._is_background)
        if len(name) > _LONGEST:
            return body
        end = body.rindex(b"}")
        return spliced(body, end, end, b',"request_id":"%b"' % name.encode())

    def reader(
        self,
        homes: ResponseHomes,
        home: tuple[str, KernelId],
        seen: Observer | None,
        now: float,
        *,
        is_stream: bool,
    ) -> Observer:
        """A reader that remembers the replica under the id in its answer. ``home``: model and
        replica. ``seen``: the observer that sees the answer first."""
        owner = self._owner
        is_background = self._is_background

        def found(response_id: str, has_ended: bool) -> None:
            homes.remember(response_id, owner, Home(*home, has_ended or not is_background), now)

        read = ResponseReader(found, is_stream=is_stream).feed
        return read if seen is None else lambda piece: read(seen(piece))
