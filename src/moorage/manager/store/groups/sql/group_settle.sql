-- Move at most $1 rows of each kind from aliases to the current names of their groups. Returns how
-- many rows were moved, and the live sessions and agents among them.
SELECT s.moved + cardinality(a.agents) AS moved, s.live, a.agents
FROM settle_aliases($1) s, settle_agents() a(agents)
