"""Models by their id on a hub: fetched into the cache of the node before an engine starts."""

from moorage.agent.models.fetching import fetch, find_unfetchable, is_fetched

__all__ = ["fetch", "find_unfetchable", "is_fetched"]
