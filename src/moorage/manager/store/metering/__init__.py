"""Metering in Postgres: usage of sessions and models, budgets and shares of limits."""
