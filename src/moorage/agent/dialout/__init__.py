"""Dial-out: carries connections to kernels over the connections that the agent opens to the
proxies."""
