"""Serving: replica counts of endpoints and the route table for proxies. Pure."""
