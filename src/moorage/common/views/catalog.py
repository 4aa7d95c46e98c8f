"""REST models for the catalogue of models."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from moorage.common.views.resources import View


class CatalogModelView(View):
    """A well-tried model, and what it needs."""

    id: str = Field(description="Its id on the model hub.")
    engine: str
    parameters: int
    weight_bytes: int
    context: int = Field(description="Maximum number of tokens in a sequence.")
    dtype: str
    quantization: str = Field(description="Empty: its weights are not quantised.")
    kv_cache_bytes_per_token: int
    fits: list[str] = Field(
        description="The smallest number of common GPUs that it fits on, by kind of GPU."
    )
    args: list[str] = Field(description="Arguments that its engine requires.")
    needs_token: bool = Field(description="Whether its hub requires a token.")


class CatalogNodeView(View):
    """How a model fits on one agent."""

    agent_id: str
    fits: bool
    gpus: int = Field(description="Number of GPUs that a replica would use; 0 if it does not fit.")
    context: int = Field(description="Number of tokens in a sequence that fit.")


class CatalogFitView(View):
    """A model of the catalogue for the agents of a resource group."""

    model: CatalogModelView
    resource_group: str
    nodes: list[CatalogNodeView] = Field(description="Agents of the group that have GPUs.")
    spec: dict[str, Any] | None = Field(
        description="Specification of an endpoint that serves it; null if no agent can."
    )
    problem: str = Field(default="", description="Why there is no specification.")
    next_step: str = ""
