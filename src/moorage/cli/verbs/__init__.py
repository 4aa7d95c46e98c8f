"""One module per verb, or per few that belong together; importing one registers it."""

from moorage.cli.verbs import (
    agent,
    agents,
    apps,
    batch,
    chat,
    copy,
    groups,
    inside,
    keys,
    listing,
    logs,
    peers,
    plan,
    quota,
    serve,
    start,
    stop,
    top,
    why,
    workspace,
)

registered = (
    agent,
    agents,
    apps,
    batch,
    chat,
    copy,
    groups,
    inside,
    keys,
    listing,
    logs,
    peers,
    plan,
    quota,
    serve,
    start,
    stop,
    top,
    why,
    workspace,
)

__all__ = ["registered"]
