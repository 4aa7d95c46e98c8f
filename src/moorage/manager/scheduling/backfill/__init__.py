"""Backfill: reservations for blocked sessions and what may start ahead of them. Pure."""
