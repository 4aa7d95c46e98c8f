"""Limits of requests for models: what they need, what was used, and what each reserves. Pure."""
