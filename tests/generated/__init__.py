"""Clients that generators write from the OpenAPI document, against a real manager."""
