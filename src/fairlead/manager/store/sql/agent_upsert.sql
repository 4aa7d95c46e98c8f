-- Agents were heard that are new, back, or changed: their facts and their time ($1: one object each). Says what
-- each was before, so that a return can be told.
WITH input AS (
    SELECT * FROM jsonb_to_recordset($1::jsonb) AS i(
        id text, resource_group text, incarnation text, address text, version text, arch text,
        runtimes text[], engines text[], labels jsonb, draining boolean)
), before AS (
    SELECT a.id, a.status, a.incarnation FROM agents a JOIN input i ON i.id = a.id
), now_known AS (
    INSERT INTO agents AS a (id, resource_group, status, incarnation, address, version, arch, runtimes, engines,
                             labels, draining)
    SELECT id, resource_group, 'ALIVE', incarnation, address, version, arch, runtimes, engines, labels, draining
    FROM input ORDER BY id
    ON CONFLICT (id) DO UPDATE SET
        resource_group = excluded.resource_group, status = 'ALIVE', incarnation = excluded.incarnation,
        address = excluded.address, version = excluded.version, arch = excluded.arch,
        runtimes = excluded.runtimes, engines = excluded.engines, labels = excluded.labels,
        draining = excluded.draining, last_seen = now(),
        connected_at = CASE WHEN a.incarnation = excluded.incarnation THEN a.connected_at ELSE now() END
    RETURNING a.id
)
SELECT n.id, b.status AS old_status, b.incarnation AS old_incarnation FROM now_known n LEFT JOIN before b USING (id)
