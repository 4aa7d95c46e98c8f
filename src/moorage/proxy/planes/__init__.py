"""Data planes, which move request and response bytes as decided by the core."""
