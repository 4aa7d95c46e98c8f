"""Data planes: move request and response bytes as the core decides."""
