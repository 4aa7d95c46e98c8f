"""Platform in Postgres: agents, peers, managers, the leader, audit and maintenance of the
database."""
