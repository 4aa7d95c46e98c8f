"""Simulators: a fleet of simulated agents, and scheduling policies in virtual time."""
