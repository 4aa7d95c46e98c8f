"""Sessions in Postgres: their life, their records, their idle criteria and their templates."""
