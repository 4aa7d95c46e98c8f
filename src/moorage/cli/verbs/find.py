"""A name as people give it: an endpoint's, else a session's."""

from __future__ import annotations

from moorage.common.model.errors import NotFound
from moorage.common.views.resources import EndpointView, SessionView
from moorage.sdk import ApiError, Client


async def find(client: Client, name: str) -> EndpointView | SessionView:
    """Raises ``NotFound`` when neither has the name."""
    try:
        return await client.get_endpoint(name)
    except ApiError as error:
        if error.status != 404:
            raise
    try:
        return await client.get_session(name)
    except ApiError as error:
        if error.status != 404:
            raise
        raise NotFound(
            f"there is no endpoint or session {name!r}", next_step="`moorage ps --all` lists them"
        ) from error
