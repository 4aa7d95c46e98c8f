-- Add a sample of each group's slots and queue to the spans of a minute, an hour and a day that
-- contain it. $1: the leader's term.
WITH spans AS (
    SELECT s.seconds, date_bin(make_interval(secs => s.seconds), now(), 'epoch') AS at
    FROM unnest(ARRAY[60, 3600, 86400]) AS s(seconds)
    WHERE EXISTS (SELECT FROM leases WHERE name = 'leader' AND term = $1 AND expires_at > now())
), slots AS (
-- include: group_slots
), queues AS (
    SELECT resource_group, count(*) FILTER (WHERE status = 'PENDING') AS pending,
           count(*) FILTER (WHERE status = 'RUNNING') AS running
    FROM sessions WHERE status NOT IN (:TERMINAL) GROUP BY 1
), occupied AS (
    INSERT INTO occupancy_spans
        AS o (resource_group, seconds, at, samples, slot, capacity, used, used_peak)
    SELECT l.resource_group, s.seconds, s.at, 1, l.slot, l.capacity, l.used, l.used
    FROM slots l CROSS JOIN spans s
    ON CONFLICT (resource_group, seconds, at, slot) DO UPDATE SET samples = o.samples + 1,
        capacity = o.capacity + (excluded.capacity - o.capacity) / (o.samples + 1),
        used = o.used + (excluded.used - o.used) / (o.samples + 1),
        used_peak = greatest(o.used_peak, excluded.used_peak)
)
INSERT INTO queue_spans AS o (resource_group, seconds, at, samples, pending, pending_peak, running)
SELECT g.name, s.seconds, s.at, 1, coalesce(q.pending, 0), coalesce(q.pending, 0),
       coalesce(q.running, 0)
FROM resource_groups g CROSS JOIN spans s LEFT JOIN queues q ON q.resource_group = g.name
WHERE g.retired_at IS NULL AND g.renamed_to IS NULL
ON CONFLICT (resource_group, seconds, at) DO UPDATE SET samples = o.samples + 1,
    pending = o.pending + (excluded.pending - o.pending) / (o.samples + 1),
    running = o.running + (excluded.running - o.running) / (o.samples + 1),
    pending_peak = greatest(o.pending_peak, excluded.pending_peak)
