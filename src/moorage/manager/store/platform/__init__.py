"""Platform in Postgres: agents, peers, managers, the leader, audit and upkeep of the database."""
