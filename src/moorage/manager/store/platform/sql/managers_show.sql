-- The managers, oldest first, with the numbers of connections to each. The lease of a leader that
-- has died still names that leader, until another manager removes its row or begins a term.
SELECT m.id, m.link, m.version, m.started_at, m.proxies, (
    SELECT count(*)
    FROM agents a
    WHERE a.manager = m.id AND a.detached_stream IS DISTINCT FROM a.stream) AS agents,
    CASE WHEN l.expires_at > now() THEN l.term END AS term
FROM managers m LEFT JOIN leases l ON l.name = 'leader' AND l.holder = m.id::text
ORDER BY m.started_at, m.id
