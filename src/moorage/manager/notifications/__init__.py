"""Notifications: which subscriptions get an event, what they are sent, and how it is sent."""
