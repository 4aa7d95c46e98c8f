"""SSH for one session: a server on standard input and output, OpenSSH's ``ProxyCommand``."""
