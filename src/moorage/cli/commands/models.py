"""``moorage models``: tested models, their memory needs, and the nodes that fit them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorage.cli import output
from moorage.cli.app import list_command, noun
from moorage.cli.completion import catalogue_models, group_names
from moorage.cli.context import Cli, Output, command
from moorage.common.model.errors import InvalidInput

if TYPE_CHECKING:
    from moorage.common.catalog import CatalogModel, GpuNode, Wanted
    from moorage.common.catalog.fitting import NoFit

models = noun("models", help="Models, their memory needs, and the nodes that fit them.")


@list_command(models)
def list_models(cli: Cli) -> None:
    """List tested models with the smallest number of common GPUs that fits each.

    \b
    Examples:
      moorage models
      moorage models list -o wide
    """
    from moorage.common.catalog import load_models

    found = load_models()
    if cli.json:
        cli.print_json({"models": [_facts(model) for model in found]})
    elif cli.output is Output.NAME:
        for model in found:
            print(model.id)
    else:
        wide = ("ATTENTION", "QUANTIZATION", "TOKEN", "ARGUMENTS") if cli.wide else ()
        columns = ("ID", "ENGINE", "PARAMETERS", "WEIGHTS", "CONTEXT", "FITS", *wide)
        output.print_table(cli.out, columns, [_row(model, wide=cli.wide) for model in found])


@command(models)
def show(
    cli: Cli,
    model: Annotated[
        str,
        typer.Argument(
            help="An id on the hub, or a model's directory here.", autocompletion=catalogue_models
        ),
    ],
    context: Annotated[
        int, typer.Option(min=0, help="Context length in tokens. Default: the longest that fits.")
    ] = 0,
    kv_dtype: Annotated[
        str,
        typer.Option(
            help="Data type of the KV cache, like fp8. Default: the model's own.", metavar="DTYPE"
        ),
    ] = "",
    group: Annotated[
        str | None,
        typer.Option(help="Only the nodes of this resource group.", autocompletion=group_names),
    ] = None,
) -> None:
    """Show the memory needs of a model, and the nodes and number of GPUs that fit it.

    The numbers come from the catalogue, the model's directory, the hub's cache on this machine, or
    the hub.

    \b
    Examples:
      moorage models show Qwen/Qwen3-8B
      moorage models show meta-llama/Llama-3.3-70B-Instruct --context 32768 --kv-dtype fp8
    """
    import asyncio

    from moorage.cli.model_lookup import look_up
    from moorage.common.catalog import Wanted
    from moorage.common.hub import HubFailed

    try:
        found = asyncio.run(look_up(model))
    except HubFailed as error:
        raise InvalidInput(
            f"nothing is known about {model}: {error.message}", next_step=error.next_step
        ) from None

    wanted = Wanted(context=context)
    nodes = _nodes(cli, group)
    if cli.json:
        fits = [_fit_facts(found, node, wanted, kv_dtype) for node in nodes]
        cli.print_json(_facts(found, wanted, kv_dtype) | {"nodes": fits})
    elif cli.output is Output.NAME:
        print(found.id)
    else:
        _print(cli, found, nodes=nodes, wanted=wanted, kv_dtype=kv_dtype)


def _nodes(cli: Cli, group: str | None) -> list[GpuNode]:
    """The agents' GPUs; empty, with a note, if the manager does not report them."""
    from moorage.common.catalog.sizing import nodes_of
    from moorage.common.model.errors import MoorageError

    try:
        agents = cli.run(lambda client: client.agents.list())
    except MoorageError as error:
        cli.note(f"note: nodes are not shown: {error}")
        return []

    return [
        node
        for node in nodes_of([a for a in agents if group in (None, a.resource_group)])
        if node.gpus
    ]


def _facts(model: CatalogModel, wanted: Wanted | None = None, kv_dtype: str = "") -> dict[str, Any]:
    from moorage.common.catalog import kv_cache_bytes
    from moorage.common.catalog.fitting import sufficient
    from moorage.common.catalog.memory import BLOCK

    architecture = model.architecture
    sizes = model.sizes(kv_dtype)
    facts: dict[str, Any] = {
        "id": model.id,
        "engine": model.engine,
        "source": model.source,
        "parameters": architecture.parameters,
        "weight_bytes": model.weights,
        "context": architecture.context,
        "dtype": architecture.dtype,
        "quantization": architecture.quantization,
        "attention": architecture.attention,
        "layers": architecture.full_layers + architecture.window_layers,
        "heads": architecture.heads,
        "kv_heads": architecture.kv_heads,
        "experts": architecture.experts,
        "kv_cache_bytes_per_token": kv_cache_bytes(architecture, BLOCK, element=sizes.element)
        // BLOCK,
        "fits": list(sufficient(sizes, *([wanted] if wanted else []))),
        "args": list(model.args),
        "needs_token": model.gated,
    }
    return facts


def _fit_facts(model: CatalogModel, node: GpuNode, wanted: Wanted, kv_dtype: str) -> dict[str, Any]:
    from moorage.common.catalog import Choice, choose

    found = choose(model.sizes(kv_dtype), [node], wanted)
    facts: dict[str, Any] = {
        "node": node.name,
        "gpus": [{"model": kind, "memory_bytes": memory} for kind, memory in node.gpus],
        "fits": isinstance(found, Choice),
        "context": found.context,
    }
    if isinstance(found, Choice):
        facts |= {
            "tensor_parallel": found.tensor_parallel,
            "weight_bytes_per_gpu": found.weights,
            "kv_cache_bytes_per_gpu": found.kv_cache,
            "working_bytes_per_gpu": found.working,
        }

    return facts


def _row(model: CatalogModel, *, wide: bool) -> list[str]:
    from moorage.common.catalog.fitting import sufficient
    from moorage.common.catalog.sizing import size

    architecture = model.architecture
    fits = sufficient(model.sizes())
    row = [model.id, model.engine, _billions(architecture.parameters), size(model.weights)]
    row += [str(architecture.context), fits[0] if fits else "more than one node"]

    if wide:
        quantization = architecture.quantization or architecture.dtype
        row += [
            architecture.attention,
            quantization,
            "yes" if model.gated else "",
            " ".join(model.args),
        ]

    return row


def _print(
    cli: Cli, model: CatalogModel, nodes: list[GpuNode], wanted: Wanted, *, kv_dtype: str
) -> None:
    from moorage.common.catalog import kv_cache_bytes
    from moorage.common.catalog.fitting import USEFUL_CONTEXT
    from moorage.common.catalog.sizing import gpus_text, size

    architecture = model.architecture
    facts = _facts(model, wanted, kv_dtype)
    tokens = wanted.context or min(architecture.context, USEFUL_CONTEXT)
    cache = kv_cache_bytes(architecture, tokens, element=model.sizes(kv_dtype).element)
    heads = (
        ""
        if architecture.latent
        else f", {architecture.heads} heads, {architecture.kv_heads} KV heads"
    )
    experts = f", {architecture.experts} experts" if architecture.experts else ""
    output.print_facts(
        cli.out,
        [
            ("id", model.id),
            ("engine", " ".join((model.engine, *model.args))),
            ("source", model.source),
            ("parameters", f"{_billions(architecture.parameters)}{experts}"),
            (
                "weights",
                f"{size(model.weights)} in {architecture.quantization or architecture.dtype}",
            ),
            ("attention", f"{architecture.attention}, {facts['layers']} layers{heads}"),
            ("context", f"{architecture.context} tokens"),
            ("KV cache", f"{size(cache)} for {tokens} tokens"),
            ("fits", " or ".join(facts["fits"]) or "on no common node"),
            (
                "token",
                "needed: `moorage secrets set`, then --secret HF_TOKEN=NAME" if model.gated else "",
            ),
        ],
    )

    if nodes:
        cli.out.print()
        rows = [
            (node.name, gpus_text(node), *_fit_cells(model, node, wanted, kv_dtype))
            for node in nodes
        ]
        output.print_table(cli.out, ("NODE", "GPUS", "TAKES IT", "GPUS NEEDED", "CONTEXT"), rows)


def _fit_cells(
    model: CatalogModel, node: GpuNode, wanted: Wanted, kv_dtype: str
) -> tuple[str, str, str]:
    from moorage.common.catalog import Choice, choose

    found: Choice | NoFit = choose(model.sizes(kv_dtype), [node], wanted)
    if isinstance(found, Choice):
        return "yes", str(found.tensor_parallel), str(found.context)
    return "no", "", f"at most {found.context}" if found.context else ""


def _billions(parameters: int) -> str:
    return f"{parameters / 1e9:.3g}B" if parameters >= 1e9 else f"{parameters / 1e6:.3g}M"
