"""Options about where and when something runs, the same for all verbs that start something."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from moorage.cli import parse

Arch = Annotated[str | None, typer.Option(help="Only agents of this architecture, like x86_64.")]
Labels = Annotated[
    list[str] | None, typer.Option("--label", help="Only agents with this label, like room=north; repeat it.")
]
On = Annotated[list[str] | None, typer.Option("--on", help="Only this agent; repeat it for several.")]
Image = Annotated[str | None, typer.Option(help="Run it in a container of this image, on nodes with Docker.")]
Runtime = Annotated[
    str | None,
    typer.Option(
        help="process, or docker: in a container of --image, for vLLM else of the node's own image."
    ),
]
Priority = Annotated[int | None, typer.Option(min=0, max=100, help="Higher goes first; 10 if not given.")]


def where(
    arch: str | None,
    labels: list[str] | None,
    on: list[str] | None,
    priority: int | None,
    image: str | None,
    runtime: str | None = None,
) -> dict[str, Any]:
    """As fields of a spec; None for what was not given."""
    return {
        "arch": arch,
        "labels": parse.pairs(labels, "--label", "room=north") if labels else None,
        "agents": on or None,
        "priority": priority,
        "image": image,
        "runtime": runtime or ("docker" if image else None),
    }
