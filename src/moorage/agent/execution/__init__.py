"""Execution inside sessions: commands and workspaces."""
