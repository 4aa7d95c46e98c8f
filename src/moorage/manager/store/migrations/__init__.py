"""Forward-only migrations, run by ``store.migrate`` under an advisory lock."""
