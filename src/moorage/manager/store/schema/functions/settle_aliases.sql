-- Moves up to `most` rows of each kind from former names of groups to the current ones. Live
-- sessions among them were created while the group was being renamed.
CREATE OR REPLACE FUNCTION settle_aliases(most integer)
RETURNS TABLE (moved bigint, live uuid[]) LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE moved_now bigint;
BEGIN
    moved := 0;
    IF NOT EXISTS (SELECT FROM resource_groups WHERE renamed_to IS NOT NULL) THEN
        RETURN NEXT;
        RETURN;
    END IF;
    WITH strays AS (
        SELECT s.id, g.renamed_to FROM resource_groups g, LATERAL (
            SELECT * FROM sessions s WHERE s.resource_group = g.name
            LIMIT most FOR NO KEY UPDATE SKIP LOCKED) s
        WHERE g.renamed_to IS NOT NULL
    ), changed AS (
        UPDATE sessions s SET resource_group = o.renamed_to,
            spec = jsonb_set(s.spec, '{resource_group}', to_jsonb(o.renamed_to))
        FROM strays o WHERE s.id = o.id RETURNING s.id, s.status
    )
    SELECT count(*), array_agg(id) FILTER (WHERE status NOT IN (:TERMINAL))
    INTO moved_now, live FROM changed;
    moved := moved + moved_now;
    UPDATE expected_starts e SET resource_group = o.renamed_to FROM (
        SELECT e.ctid AS place, g.renamed_to FROM resource_groups g, LATERAL (
            SELECT e.ctid FROM expected_starts e
            WHERE e.resource_group = g.name AND e.outcome = 'started' LIMIT most) e
        WHERE g.renamed_to IS NOT NULL) o
    WHERE e.ctid = o.place;
    GET DIAGNOSTICS moved_now = ROW_COUNT;
    moved := moved + moved_now;
    -- Of a span that both names have, the means are weighted.
    WITH gone AS (
        DELETE FROM occupancy_spans o USING (
            SELECT o.ctid AS place, g.renamed_to FROM resource_groups g, LATERAL (
                SELECT o.ctid FROM occupancy_spans o WHERE o.resource_group = g.name LIMIT most) o
            WHERE g.renamed_to IS NOT NULL) s
        WHERE o.ctid = s.place RETURNING s.renamed_to, o.*
    )
    INSERT INTO occupancy_spans AS o
        (resource_group, seconds, at, samples, slot, capacity, used, used_peak)
    SELECT renamed_to, seconds, at, sum(samples), slot, sum(capacity * samples) / sum(samples),
           sum(used * samples) / sum(samples), max(used_peak)
    FROM gone GROUP BY renamed_to, seconds, at, slot
    ON CONFLICT (resource_group, seconds, at, slot) DO UPDATE SET
        samples = o.samples + excluded.samples,
        capacity = o.capacity + (excluded.capacity - o.capacity)
            * excluded.samples / (o.samples + excluded.samples),
        used = o.used + (excluded.used - o.used)
            * excluded.samples / (o.samples + excluded.samples),
        used_peak = greatest(o.used_peak, excluded.used_peak);
    GET DIAGNOSTICS moved_now = ROW_COUNT;
    moved := moved + moved_now;
    WITH gone AS (
        DELETE FROM queue_spans o USING (
            SELECT o.ctid AS place, g.renamed_to FROM resource_groups g, LATERAL (
                SELECT o.ctid FROM queue_spans o WHERE o.resource_group = g.name LIMIT most) o
            WHERE g.renamed_to IS NOT NULL) s
        WHERE o.ctid = s.place RETURNING s.renamed_to, o.*
    )
    INSERT INTO queue_spans AS o
        (resource_group, seconds, at, samples, pending, pending_peak, running)
    SELECT renamed_to, seconds, at, sum(samples),
           sum(pending * samples) / sum(samples), max(pending_peak),
           sum(running * samples) / sum(samples) FROM gone GROUP BY renamed_to, seconds, at
    ON CONFLICT (resource_group, seconds, at) DO UPDATE SET samples = o.samples + excluded.samples,
        pending = o.pending + (excluded.pending - o.pending)
            * excluded.samples / (o.samples + excluded.samples),
        running = o.running + (excluded.running - o.running)
            * excluded.samples / (o.samples + excluded.samples),
        pending_peak = greatest(o.pending_peak, excluded.pending_peak);
    GET DIAGNOSTICS moved_now = ROW_COUNT;
    moved := moved + moved_now;
    RETURN NEXT;
END
$$;
