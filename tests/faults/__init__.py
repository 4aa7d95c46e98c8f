"""Fault injection: real processes under load, killed, paused and disconnected on a seeded
schedule."""
