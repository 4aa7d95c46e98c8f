"""Programs for developers, which the Makefile's targets run."""
