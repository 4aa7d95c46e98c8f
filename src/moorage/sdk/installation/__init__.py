"""The installation that clients connect to: its addresses and key, from the environment, contexts
and saved files. The command line and ``Client()`` both look them up here."""
