"""Sessions in Postgres: lifecycle, records, idle criteria and templates."""
