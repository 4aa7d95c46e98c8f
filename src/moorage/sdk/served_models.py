"""Models as the proxy shows them to a key."""

from __future__ import annotations

from pydantic import BaseModel
from yarl import URL

from moorage.sdk.errors import Unreachable
from moorage.sdk.transport import Transport, segment


class ServedModel(BaseModel):
    """``max_model_len``: tokens of a prompt with its answer; None: unknown. ``capabilities``: paths
    of the APIs that its engine has; None: unknown, as nothing serves it yet, or the engine is
    custom."""

    id: str
    max_model_len: int | None = None
    capabilities: list[str] | None = None


async def served_model(
    openai_url: str, key: str, model: str, *, ca_file: str | None = None
) -> ServedModel:
    """The model of that name. ``openai_url`` ends in ``/v1``; ``ca_file`` as in ``Client``.

    Raises ``ApiError`` (401: the proxy does not know the key, 404: the key sees no such model) and
    ``Unreachable``.
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
