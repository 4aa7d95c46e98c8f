-- Record that this server ($1: system identifier, $2: timeline) is in use.
INSERT INTO lineage AS l (only_row, system, timeline) VALUES (true, $1, $2)
ON CONFLICT (only_row) DO UPDATE SET
    system = excluded.system, timeline = excluded.timeline, since = now(),
    failovers = l.failovers + 1
