"""Dial-out at the proxy: agents that it cannot reach open connections, which carry the traffic for
their kernels."""
