"""SSH servers whose channels are commands in sessions: parts of the command line and of the
proxy."""
