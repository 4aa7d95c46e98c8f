"""Default resources for ``moorage serve MODEL``, chosen from what the model needs and what the
nodes have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moorage.cli.context import Cli
from moorage.cli.model_lookup import look_up
from moorage.common.catalog import sizing
from moorage.common.catalog.serving import DOWNLOAD
from moorage.common.hub import HubFailed, is_hub_id
from moorage.common.hub.selection import split_id
from moorage.common.model.errors import InvalidInput
from moorage.common.model.runtimes import traits_of
from moorage.common.model.spec import EndpointSpec
from moorage.sdk import ApiError

if TYPE_CHECKING:
    from moorage.sdk import Client


async def fit_to_nodes(cli: Cli, client: Client, spec: EndpointSpec) -> EndpointSpec:
    """``spec`` with resources, arguments and agents for its model; unchanged if no estimate is
    possible. Raises ``Infeasible`` if no node fits the model."""
    if traits_of(spec.runtime).site_jobs or not spec.model:
        return spec

    try:
        agents = await client.agents.list()
    except ApiError:
        return spec  # this key may not read the agents

    if not sizing.eligible(spec, agents):
        return spec

    try:
        model = await look_up(spec.model)
    except (HubFailed, InvalidInput) as error:
        if is_hub_id(split_id(spec.model)[0]):
            cli.note(
                f"note: the needs of {spec.model} are unknown: {error}; set them with --gpus and "
                "--resources"
            )

        return spec

    filled = sizing.fill(spec, model, agents) if model.engine == spec.engine else None
    if filled is None:
        return spec

    cli.note(f"{model.id}: {filled.note}")
    given: dict[str, Any] = spec.model_dump(mode="json", exclude_unset=True)
    changed: dict[str, Any] = {
        "resources": filled.resources,
        "args": [*spec.args, *filled.args],
        "env": filled.env | spec.env,
    }
    if is_hub_id(split_id(spec.model)[0]) and "start_timeout_s" not in given:
        changed["start_timeout_s"] = spec.start_timeout_s + round(model.weights / DOWNLOAD)
    if filled.agents:
        changed["agents"] = filled.agents

    return type(spec).model_validate(given | changed)
