"""Execution inside sessions: commands and workspace requests."""
