"""One module per verb, or per few that belong together; importing one registers it."""

from fairlead.cli.verbs import agent, batch, chat, groups, listing, logs, quota, serve, stop

registered = (agent, batch, chat, groups, listing, logs, quota, serve, stop)

__all__ = ["registered"]
