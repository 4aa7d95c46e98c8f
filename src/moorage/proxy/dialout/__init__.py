"""Dial-out at the proxy: agents that it cannot reach open the connections, which carry what their
kernels get."""
