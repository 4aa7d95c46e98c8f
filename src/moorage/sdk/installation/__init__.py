"""The installation that clients talk to: its addresses and key, from the environment, contexts and
saved files. The command line and ``Client()`` find them here."""
