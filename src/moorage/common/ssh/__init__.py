"""SSH servers whose channels are commands in sessions: parts shared by the command line and the
proxy."""
