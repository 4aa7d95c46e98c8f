"""Scheduling in Postgres: snapshots for the planner, placements, holds, decisions and quotas."""
