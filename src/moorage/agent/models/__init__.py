"""Models from a hub, fetched into the cache of the node before an engine starts."""

from moorage.agent.models.fetching import (
    FetchedModel,
    fetch,
    fetch_shared,
    find_unfetchable,
    is_fetched,
    is_shared,
)

__all__ = ["FetchedModel", "fetch", "fetch_shared", "find_unfetchable", "is_fetched", "is_shared"]
