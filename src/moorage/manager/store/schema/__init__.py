"""Schema: the tables, their migrations, and what a migration means for a running cluster."""
