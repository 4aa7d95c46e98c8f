"""Dial-out: carries the kernels' connections over those that the agent opens to the proxies."""
