-- A subscription with its URL and secret, which are stored like the installation's other secrets.
-- No row: the caller's keyring ($22) lacks a key with which another secret is encrypted, or the
-- user or project has as many subscriptions as are allowed ($23).
WITH sealed AS (
    INSERT INTO secrets (project, name, key_id, sealed, created_by, changed_by)
    SELECT '', 'subscription/' || $1, $20, $21, $19, $19
    WHERE NOT EXISTS (SELECT FROM secrets WHERE key_id <> ALL ($22::text[]))
      AND (SELECT count(*) FROM subscriptions
           WHERE CASE WHEN $5 THEN shared AND project = $3
                      ELSE NOT shared AND user_name = $4 END) < $23::bigint
    RETURNING 1
)
INSERT INTO subscriptions (id, name, project, user_name, shared, channel, target, format, events,
                           own, resource_groups, selector, session_name, waiting_s, before_end_s,
                           enabled, reason, checked_at, created_by, after_event)
SELECT $1::text::uuid, $2::text, $3::text, $4::text, $5::boolean, $6::text, $7::text, $8::text,
       $9::text[], $10::boolean, $11::text[], $12::text, $13::text, $14::float8, $15::float8,
       $16::boolean, $17::text, now() - make_interval(secs => $18::float8), $19::text,
       (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM event_outbox_id_seq)
FROM sealed
RETURNING id
