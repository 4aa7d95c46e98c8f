"""Execution in sessions: commands and workspaces."""
