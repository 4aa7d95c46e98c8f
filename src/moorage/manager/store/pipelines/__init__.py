"""Pipelines in Postgres, and the outputs of their steps."""
