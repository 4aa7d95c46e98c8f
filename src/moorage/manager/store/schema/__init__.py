"""Schema: the tables, their migrations, and the effects of a migration on a running cluster."""
