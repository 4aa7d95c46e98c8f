"""Endpoints in Postgres: their replicas, their load and the routes to them."""
