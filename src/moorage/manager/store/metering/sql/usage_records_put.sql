-- Store records of proxy $1. A stored record stays as it is; a trigger removes one that was rolled
-- up. $14: the sessions of the replicas that served the requests, which determine the endpoint and
-- the resource group.
INSERT INTO usage_records (source, epoch, sequence, began_at, ended_at, project, username, key_id,
                           model, requests, tokens_in, tokens_out, tokens_cached, session_id,
                           endpoint, resource_group)
SELECT $1, i.epoch, i.sequence, to_timestamp(i.began_ms / 1000.0),
       to_timestamp(i.ended_ms / 1000.0), i.project, i.username, i.key_id, i.model, i.requests,
       i.tokens_in, i.tokens_out, i.tokens_cached, coalesce(i.session_id::text, ''),
       coalesce(e.name, ''), coalesce(s.resource_group, '')
FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[],
            $8::text[], $9::text[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[],
            $14::uuid[])
     AS i(epoch, sequence, began_ms, ended_ms, project, username, key_id, model,
          requests, tokens_in, tokens_out, tokens_cached, session_id)
LEFT JOIN sessions s ON s.id = i.session_id
LEFT JOIN endpoints e ON e.id = s.endpoint_id
ON CONFLICT (source, epoch, sequence) DO NOTHING
RETURNING sequence
