"""Programs of developers: what the targets of the Makefile run."""
