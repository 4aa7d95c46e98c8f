-- An agent was heard: its facts and its time. Says what it was before, so that a return can be told.
WITH before AS (SELECT status, incarnation FROM agents WHERE id = $1), now_known AS (
    INSERT INTO agents AS a (id, resource_group, status, incarnation, address, version, arch, runtimes, engines,
                             labels, draining)
    VALUES ($1, $2, 'ALIVE', $3, $4, $5, $6, $7, $8, $9, $10)
    ON CONFLICT (id) DO UPDATE SET
        resource_group = excluded.resource_group, status = 'ALIVE', incarnation = excluded.incarnation,
        address = excluded.address, version = excluded.version, arch = excluded.arch,
        runtimes = excluded.runtimes, engines = excluded.engines, labels = excluded.labels,
        draining = excluded.draining, last_seen = now(),
        connected_at = CASE WHEN a.incarnation = excluded.incarnation THEN a.connected_at ELSE now() END
    RETURNING 1
)
SELECT (SELECT status FROM before) AS old_status, (SELECT incarnation FROM before) AS old_incarnation FROM now_known
