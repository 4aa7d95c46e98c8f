"""Platform over REST: agents, peers, managers, health, audit log, the console's event streams."""
