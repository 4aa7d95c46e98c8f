"""Limits of requests for models: their needs, the usage, and the reservations. Pure."""
