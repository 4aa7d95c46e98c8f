"""Endpoints over REST."""
