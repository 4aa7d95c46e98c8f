"""Backfill: reservations for blocked sessions, and the sessions that may start ahead of them.

Pure. Decides about one blocked session at a time; the pass decides which sessions get a
reservation.
"""
