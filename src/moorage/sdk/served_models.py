"""Models as the proxy lists them for a key."""

from __future__ import annotations

from pydantic import BaseModel

from moorage.common.model.errors import InvalidInput
from moorage.sdk.base_url import BaseUrl
from moorage.sdk.errors import Unreachable
from moorage.sdk.transport import Transport, segment


class ServedModel(BaseModel):
    """``max_model_len``: the most tokens of a prompt with its answer; None if unknown.
    ``capabilities``: paths of its engine's APIs; None if unknown, because nothing serves it yet or
    the engine is custom."""

    id: str
    max_model_len: int | None = None
    capabilities: list[str] | None = None


async def served_model(
    openai_url: str, key: str, model: str, *, ca_file: str | None = None
) -> ServedModel:
    """The model with this name. ``openai_url`` ends in ``/v1``; ``ca_file`` is as in ``Client``.

    Raises ``ApiError`` (401 if the proxy does not know the key, 404 if the key sees no such model)
    ``Unreachable``, and ``InvalidInput`` for an address that is not a URL.
    """
    try:
        base = BaseUrl.parse(openai_url)
    except ValueError as error:
        raise InvalidInput(
            f"{openai_url!r} is not the address of a proxy",
            next_step="write it like https://moorage.example.org/v1",
        ) from error

    path = f"{base.path}/models/{segment(model)}"
    try:
        async with Transport(base.origin, key, ca_file=ca_file) as proxy:
            return await proxy.call(ServedModel, "GET", path)
    except Unreachable as error:
        raise Unreachable(
            f"no proxy answers at {openai_url}",
            next_step="give its address with --openai-url or MOORAGE_OPENAI_URL",
        ) from error
