"""Model hub: its cache on this node, and its API. The layout and API are those of
huggingface-hub."""

from moorage.common.hub.cache import HubSettings, cached_snapshot, is_hub_id, weight_files
from moorage.common.hub.lookup import HubFailed, HubFiles, fetch_config, list_files

__all__ = [
    "HubFailed",
    "HubFiles",
    "HubSettings",
    "cached_snapshot",
    "fetch_config",
    "is_hub_id",
    "list_files",
    "weight_files",
]
