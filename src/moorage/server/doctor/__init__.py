"""Diagnostics: checks of a host, and of a node before it runs an agent."""
