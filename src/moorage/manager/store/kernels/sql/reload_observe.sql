-- Write how reloads ended, as agents ($1) report for kernels ($2): generation ($3), outcome ($4),
-- detail ($5). A kernel must belong to the agent that reports it. Reports are repeated: only the
-- first report of a generation counts, and only for requested generations. Returns the sessions.
UPDATE kernel_reloads r
SET ended = i.generation, outcome = i.outcome, detail = i.detail, ended_at = now()
FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::text[])
    AS i(agent_id, kernel_id, generation, outcome, detail)
JOIN kernels k ON k.id = i.kernel_id AND k.agent_id = i.agent_id
WHERE r.kernel_id = i.kernel_id AND r.ended < i.generation AND i.generation <= r.generation
RETURNING k.session_id
