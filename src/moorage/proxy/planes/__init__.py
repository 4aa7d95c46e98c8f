"""Data planes, which move the bytes of requests and responses as decided by the core."""
