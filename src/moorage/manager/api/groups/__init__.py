"""Resource groups over REST."""
