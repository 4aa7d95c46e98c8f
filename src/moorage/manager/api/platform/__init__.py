"""Platform over REST: agents, peers, managers, health, and the console's event streams."""
