-- Roll up to $2 records, from before the hour that ended $1 seconds ago, into hours (index
-- usage_records_by_time), and record how far each epoch was rolled up: the records of one epoch
-- arrive in order.
WITH old AS (
    SELECT source, epoch, sequence FROM usage_records
    WHERE ended_at < date_bin('1 hour', now() - make_interval(secs => $1), 'epoch')
    ORDER BY ended_at LIMIT $2
), removed AS (
    DELETE FROM usage_records r USING old o
    WHERE (r.source, r.epoch, r.sequence) = (o.source, o.epoch, o.sequence) RETURNING r.*
), noted AS (
    INSERT INTO usage_epochs AS e (source, epoch, sequence)
    SELECT source, epoch, max(sequence) FROM removed GROUP BY source, epoch
    ON CONFLICT (source, epoch)
    DO UPDATE SET sequence = greatest(e.sequence, excluded.sequence), at = now()
), put AS (
    INSERT INTO usage_hours AS h (at, project, username, key_id, model, endpoint, session_id,
                                  resource_group, requests, tokens_in, tokens_out, tokens_cached)
    SELECT date_bin('1 hour', ended_at, 'epoch'), project, username, key_id, model, endpoint,
           session_id, resource_group, sum(requests), sum(tokens_in), sum(tokens_out),
           sum(tokens_cached)
    FROM removed GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
    ON CONFLICT (at, project, username, key_id, model, endpoint, session_id, resource_group)
    DO UPDATE SET
        requests = h.requests + excluded.requests, tokens_in = h.tokens_in + excluded.tokens_in,
        tokens_out = h.tokens_out + excluded.tokens_out,
        tokens_cached = h.tokens_cached + excluded.tokens_cached
)
SELECT count(*) AS rolled FROM removed
