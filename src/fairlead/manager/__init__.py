"""The manager: keeps sessions in Postgres as a state machine, schedules them, tells agents and proxies."""
