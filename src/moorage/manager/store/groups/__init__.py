"""Resource groups in Postgres: their options, their former names and their occupancy."""
