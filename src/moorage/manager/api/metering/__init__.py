"""Usage over REST: what sessions and requests use, budgets and prices."""
