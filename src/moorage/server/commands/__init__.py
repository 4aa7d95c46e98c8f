"""Commands that start, join and administer components."""
