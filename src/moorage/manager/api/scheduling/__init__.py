"""Scheduling over REST: decisions and quotas."""
