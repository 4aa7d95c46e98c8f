"""Demonstration: serves a tiny model through every component."""
