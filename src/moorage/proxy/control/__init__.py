"""Control side of the proxy: the route feed from the manager, the saved route table, health and
metrics."""
