"""Handlers for the catalogue of models, and how they fit the agents."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from moorage.common.catalog import find_model, load_models
from moorage.common.catalog.serving import fit_view, model_view
from moorage.common.model.errors import NotFound
from moorage.common.model.paging import MAX_LIMIT, Paging
from moorage.common.model.spec import Model, NoNul
from moorage.common.views.catalog import CatalogFitView, CatalogModelView
from moorage.common.views.resources import AgentView
from moorage.manager.api.groups.handlers import closed_groups
from moorage.manager.api.http import authorization
from moorage.manager.api.http.route import Call, Items, NoQuery, route

_LONGEST = 16_777_216


class FitQuery(Model):
    resource_group: NoNul = "default"
    context: Annotated[
        int,
        Field(ge=0, le=_LONGEST, description="Tokens in a sequence. 0: the longest that fits."),
    ] = 0


@route(
    "GET",
    "/v1/catalog",
    "List the models of the catalogue, with the GPUs that fit each",
    returns=Items[CatalogModelView],
    access="viewer",
)
async def list_catalog_models(call: Call[None, NoQuery]) -> Items[CatalogModelView]:
    return Items[CatalogModelView](items=[model_view(model) for model in load_models()])


@route(
    "GET",
    "/v1/catalog/{model:.+}",
    "Get a model of the catalogue, and an endpoint that serves it in a resource group",
    query=FitQuery,
    returns=CatalogFitView,
    access="viewer",
)
async def get_catalog_model(call: Call[None, FitQuery]) -> CatalogFitView:
    model = find_model(call.path("model"))
    if model is None:
        raise NotFound(
            f"no model {call.path('model')!r} in the catalogue",
            next_step="`moorage models` lists them; other models are served by their id on the hub",
        )

    query = call.query
    agents = await _agents(call, query.resource_group)
    return fit_view(model, query.resource_group, agents, context=query.context)


async def _agents(call: Call[None, FitQuery], group: str) -> list[AgentView]:
    """The group's agents, if the caller may see it."""
    found: list[AgentView] = []
    cursor = None
    while True:
        page = await call.deps.store.agents.page(
            Paging(MAX_LIMIT, cursor, "id"),
            groups=authorization.named_groups(call.scope),
            closed=await closed_groups(call),
            resource_group=group,
            status=None,
            cordon=None,
        )
        found += page.items
        cursor = page.next
        if cursor is None:
            return found
