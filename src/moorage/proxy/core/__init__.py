"""Proxy decisions: admission, routing, balancing, retries and error responses. Pure, no sockets."""
