-- Roll up hours older than $1 seconds into months, at most $2 of them, and delete epochs whose last
-- record has already been rolled up. Months have neither sessions nor hours.
WITH epochs AS (
    DELETE FROM usage_epochs WHERE at < now() - make_interval(secs => $1)
), removed AS (
    DELETE FROM usage_hours h USING (
        SELECT at, project, username, key_id, model, endpoint, session_id, resource_group
        FROM usage_hours
        WHERE at < now() - make_interval(secs => $1) ORDER BY at LIMIT $2
    ) o
    WHERE (h.at, h.project, h.username, h.key_id, h.model, h.endpoint, h.session_id,
           h.resource_group)
        = (o.at, o.project, o.username, o.key_id, o.model, o.endpoint, o.session_id,
           o.resource_group)
    RETURNING h.*
), put AS (
    INSERT INTO ledger_months
        AS m (at, project, username, key_id, model, endpoint, resource_group, unit, device, amount)
    SELECT date_trunc('month', r.at, 'UTC'), r.project, r.username, r.key_id, r.model, r.endpoint,
           r.resource_group, u.unit, '', sum(u.amount)
    FROM removed r
    CROSS JOIN LATERAL (VALUES ('requests', r.requests), ('tokens_in', r.tokens_in),
                            ('tokens_out', r.tokens_out),
                            ('tokens_cached', r.tokens_cached)) AS u(unit, amount)
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9 HAVING sum(u.amount) <> 0
    ON CONFLICT (at, project, username, key_id, model, endpoint, resource_group, unit, device)
        DO UPDATE SET amount = m.amount + excluded.amount
)
SELECT count(*) AS rolled FROM removed
