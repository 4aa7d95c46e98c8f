"""Subscriptions to events and their deliveries over REST."""
