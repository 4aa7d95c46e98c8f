"""Composition root: commands, bootstrap, all-in-one mode, registration and diagnostics."""
