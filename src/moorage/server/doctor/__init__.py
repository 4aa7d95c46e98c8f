"""Diagnostics: checks of a host, and of a node before an agent runs on it."""
