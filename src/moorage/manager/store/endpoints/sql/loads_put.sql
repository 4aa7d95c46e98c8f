-- Write the newest reports of proxies ($1, with their incarnations $2, route generations $3 and
-- whether the report is whole $4) and their loads by model ($5 proxy, $6 model, $7 in flight, $8
-- waiting, $9 requests, $10 idle seconds, $11 p90 of the time to first token, $12 in flight by
-- session, $17 for how many seconds each session has failed all requests, $18 the sessions that
-- have answered recently; $13: whether each proxy reports traffic to apps; $14: this manager; $15:
-- the source address of each report, or NULL if unchanged; $19 errors, $20 and $21 tokens of
-- prompts and answers). A whole report replaces all loads of its proxy. If the proxy was not
-- connected before it, nobody knows when its requests came: `counted` is NULL, and they are in no
-- span (endpoint_load_record). Nothing is written for a process whose name another process owns:
-- one that reported within $16 seconds to a live manager, over a link that has not ended. Returns
-- the endpoints to examine now: those with waiting requests and no replicas, those with replicas
-- that fail all requests or did so before, and those with draining replicas; and the names that
-- another process owns, with its address.
WITH unconnected AS (
    SELECT w.id FROM unnest($1::text[], $2::text[], $4::boolean[]) AS w(id, incarnation, whole)
    WHERE w.whole AND NOT EXISTS (
        SELECT FROM proxy_reports p
        WHERE p.proxy_id = w.id AND p.incarnation = w.incarnation
          AND p.at > now() - interval '1 minute')
), reported AS (
    INSERT INTO proxy_reports
        AS p (proxy_id, incarnation, routes_generation, at, tells_apps, manager, address)
    SELECT id, incarnation, generation, now(), tells_apps, $14::uuid, address
    FROM unnest($1::text[], $2::text[], $3::bigint[], $13::boolean[], $15::text[])
         AS i(id, incarnation, generation, tells_apps, address)
    ORDER BY id
    ON CONFLICT (proxy_id)
    DO UPDATE SET incarnation = excluded.incarnation,
    routes_generation = excluded.routes_generation, at = now(), tells_apps = excluded.tells_apps,
    manager = excluded.manager,
        address = coalesce(excluded.address, p.address)
    WHERE p.incarnation = excluded.incarnation OR p.at < now() - make_interval(secs => $16)
       OR NOT EXISTS (SELECT FROM managers m WHERE m.id = p.manager)
    RETURNING proxy_id
), input AS (
    SELECT i.*
    FROM unnest($5::text[], $6::text[], $7::int[], $8::int[], $9::bigint[], $10::float8[],
                $11::int[], $12::text[], $17::text[], $18::text[], $19::bigint[], $20::bigint[],
                $21::bigint[])
    AS i(proxy_id, model, in_flight, waiting, requests, idle_s, first_token_ms, replicas, failing,
         answering, errors, tokens_in, tokens_out)
    JOIN reported USING (proxy_id)
), forgotten AS (
    DELETE FROM model_loads l USING unnest($1::text[], $4::boolean[]) AS w(id, whole), reported r
    WHERE w.whole AND r.proxy_id = w.id AND l.proxy_id = w.id
      AND NOT EXISTS (SELECT FROM input i WHERE i.proxy_id = l.proxy_id AND i.model = l.model)
), written AS (
    INSERT INTO model_loads AS l (proxy_id, model, in_flight, waiting, requests, active_at,
                                  first_token_ms, replicas, failing, answering, changed_at,
                                  errors, tokens_in, tokens_out, counted)
    SELECT proxy_id, model, in_flight, waiting, requests, now() - make_interval(secs => idle_s),
           first_token_ms, replicas::jsonb, failing::jsonb, answering::jsonb, now(),
           errors, tokens_in, tokens_out,
           CASE WHEN proxy_id NOT IN (SELECT id FROM unconnected) THEN '{0,0,0,0}'::bigint[] END
    FROM input ORDER BY proxy_id, model
    ON CONFLICT (proxy_id, model)
    DO UPDATE SET in_flight = excluded.in_flight, waiting = excluded.waiting,
    requests = excluded.requests, active_at = excluded.active_at,
    first_token_ms = excluded.first_token_ms, replicas = excluded.replicas,
    failing = excluded.failing, answering = excluded.answering, changed_at = now(),
    errors = excluded.errors, tokens_in = excluded.tokens_in, tokens_out = excluded.tokens_out,
        counted = CASE WHEN excluded.counted IS NOT NULL THEN l.counted END
)
SELECT DISTINCT e.id, NULL AS proxy_id, NULL AS address
FROM input i JOIN endpoints e ON e.name = i.model AND e.deleted_at IS NULL
WHERE (i.waiting > 0 AND e.replicas = 0) OR i.failing <> '{}'
   OR EXISTS (SELECT FROM model_loads l
              WHERE l.proxy_id = i.proxy_id AND l.model = i.model AND l.failing <> '{}')
   OR EXISTS (SELECT FROM sessions s WHERE s.endpoint_id = e.id AND s.draining_since IS NOT NULL
                AND s.status NOT IN (:TERMINAL))
UNION ALL
SELECT NULL, w.id, coalesce(p.address, '')
FROM unnest($1::text[]) AS w(id) LEFT JOIN proxy_reports p ON p.proxy_id = w.id
WHERE w.id NOT IN (SELECT proxy_id FROM reported)
