"""Agent state on disk: checkpoint, logs, ports and workspaces."""
