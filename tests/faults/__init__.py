"""Real processes under load, killed, stopped and cut off by a seeded schedule; then we count."""
