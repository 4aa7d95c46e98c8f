"""Pipelines over REST."""
