"""Metering over REST: usage by sessions and requests, budgets and prices."""
