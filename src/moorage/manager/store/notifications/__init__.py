"""Notifications in Postgres: subscriptions, the outbox of events and their deliveries."""
