"""Configuration: settings, the origin of each value, and logging."""
