"""Models as the proxy lists them for a key."""

from __future__ import annotations

from pydantic import BaseModel
from yarl import URL

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
    and ``Unreachable``.
    """
    path = f"{URL(openai_url).path.rstrip('/')}/models/{segment(model)}"
    try:
        async with Transport(str(URL(openai_url).origin()), key, ca_file=ca_file) as proxy:
            return await proxy.call(ServedModel, "GET", path)
    except Unreachable as error:
        raise Unreachable(
            f"no proxy answers at {openai_url}",
            next_step="give its address with --openai-url or MOORAGE_OPENAI_URL",
        ) from error
