"""Forward-only migrations, run by ``schema.migrate`` under an advisory lock."""
