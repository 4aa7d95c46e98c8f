"""Limits on requests for models: their needs, usage and reservations. Pure."""
