"""Identity over REST: users, projects, keys, secrets and console sessions."""
