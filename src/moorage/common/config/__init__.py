"""Configuration: settings, where each value came from, and logging."""
