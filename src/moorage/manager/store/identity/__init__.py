"""Identities in Postgres: users, projects, keys, secrets and console sessions."""
