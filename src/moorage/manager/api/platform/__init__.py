"""The platform over REST: agents, peers, managers, health and what a console watches."""
