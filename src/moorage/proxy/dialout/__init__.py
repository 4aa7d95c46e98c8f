"""Dial-out in the proxy: agents that it cannot reach open connections to it, which carry the
traffic for their kernels."""
