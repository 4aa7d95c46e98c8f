"""Usage book: requests and tokens since the last take, summed by key, model and replica. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

from moorage.common.link.messages import KeyGrant
from moorage.proxy.core.token_meter import Tokens

NO_TOKENS = Tokens()


@dataclass(slots=True)
class Amounts:
    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0


class Payer(NamedTuple):
    """The payer, model and replica of usage. Without a key, the first three are empty.
    ``session_id``: empty if no replica had the request."""

    project: str
    user: str
    key_id: str
    model: str
    session_id: str = ""


_Place = tuple[str, str, str, str, str]


class UsageBook:
    def __init__(self) -> None:
        self._amounts: dict[_Place, Amounts] = {}

    def add(self, key: KeyGrant | None, model: str, session_id: str, tokens: Tokens) -> None:
        """Count one request."""
        if key is None:
            place = "", "", "", model, session_id
        else:
            place = key.project, key.owner, key.id, model, session_id
        self._add(place, 1, prompt=tokens.prompt, answer=tokens.answer, cached=tokens.cached)

    def take(self) -> dict[Payer, Amounts]:
        """Take the usage added since the last call."""
        taken = self._amounts
        self._amounts = {}
        return cast(dict[Payer, Amounts], taken)

    def put_back(self, taken: Mapping[Payer, Amounts]) -> None:
        """Put back usage that was taken."""
        for payer, amounts in taken.items():
            self._add(
                payer,
                amounts.requests,
                prompt=amounts.tokens_in,
                answer=amounts.tokens_out,
                cached=amounts.tokens_cached,
            )

    def _add(self, place: _Place, requests: int, *, prompt: int, answer: int, cached: int) -> None:
        """Add usage. ``place``: equal to a payer, but created in a fraction of the time."""
        amounts = self._amounts.get(place)
        if amounts is None:
            amounts = self._amounts[Payer(*place)] = Amounts()
        amounts.requests += requests
        amounts.tokens_in += prompt
        amounts.tokens_out += answer
        amounts.tokens_cached += cached
