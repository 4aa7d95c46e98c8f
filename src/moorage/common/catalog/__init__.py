"""Model catalogue: proven models, the memory that a model needs, and the GPUs that it fits on."""

from moorage.common.catalog.architecture import Architecture, read_config
from moorage.common.catalog.entries import CatalogModel, find_model, load_models
from moorage.common.catalog.fitting import Choice, GpuNode, Wanted, choose
from moorage.common.catalog.memory import kv_cache_bytes

__all__ = [
    "Architecture",
    "CatalogModel",
    "Choice",
    "GpuNode",
    "Wanted",
    "choose",
    "find_model",
    "kv_cache_bytes",
    "load_models",
    "read_config",
]
