"""Models from a hub, fetched into the node's cache before an engine starts."""

from moorage.agent.models.fetching import (
    FetchedModel,
    fetch,
    fetch_shared,
    find_unfetchable,
    is_fetched,
    is_shared,
)

__all__ = ["FetchedModel", "fetch", "fetch_shared", "find_unfetchable", "is_fetched", "is_shared"]
