-- Move at most $1 rows of each kind from aliases to the current names of their groups. Returns how
-- many, which live sessions, and which agents.
SELECT s.moved + cardinality(a.agents) AS moved, s.live, a.agents
FROM settle_aliases($1) s, settle_agents() a(agents)
