-- PENDING -> SCHEDULED under the leader's term: the session, its main kernel (`subs`: and its sub
-- kernels, each on its own agent), their allocations and the history, or nothing at all. The CHECK
-- (used <= capacity) of the counters rejects the statement if the snapshot was stale; the batch
-- writer then retries halves, down to single sessions. Counters are locked in the same order as in
-- allocation_release.sql, so that the two cannot deadlock.
--
-- One live attempt: a session is not placed while a kernel of an earlier attempt is not known to
-- have ended, unless its spec allows overlap. The index kernels_one_live_attempt also prevents
-- this. `lease_s` is set where the agent holds leases for the kernel's runtime (spec:
-- on_lost_agent, lease_s).
--
-- Quotas are not checked again: only the leader places sessions, one statement after the other, and
-- counts what it has placed. The lease is locked FOR SHARE: no other manager can become leader, and
-- begin to count, until this commits.
WITH term AS (
    SELECT 1 FROM leases WHERE name = 'leader' AND term = $1 AND expires_at > now() FOR SHARE
), input AS MATERIALIZED (
    -- The old status comes from this MATERIALIZED part, so that Postgres does not see it as a
    -- constant. With the constant, it would use the index sessions_pending, and compare every
    -- pending session with every placement.
    SELECT i.*, 'PENDING' AS old
    FROM unnest($2::uuid[], $3::int[], $4::uuid[], $5::text[], $6::float8[], $14::text[])
        AS i(id, revision, kernel_id, agent_id, deadline_s, places)
), takes AS (
    SELECT *
    FROM unnest($7::uuid[], $8::text[], $9::text[], $10::bigint[])
        AS t(kernel_id, slot, device_id, amount)
), subs AS (
    SELECT * FROM unnest($11::uuid[], $12::uuid[], $13::text[]) AS u(id, kernel_id, agent_id)
), moved AS (
    UPDATE sessions s SET status = 'SCHEDULED', revision = s.revision + 1, status_since = now(),
        deadline_at = now() + make_interval(secs => i.deadline_s), reason = '', detail = '',
        hold = NULL, not_before = NULL
    FROM input i
    WHERE s.id = i.id AND s.status = i.old AND s.revision = i.revision AND s.held_by IS NULL
      AND EXISTS (SELECT FROM term)
      AND (SELECT a.status = 'ALIVE' AND a.ready AND NOT a.draining
                  AND a.detached_stream IS DISTINCT FROM a.stream
           FROM agents a WHERE a.id = i.agent_id)
      AND NOT EXISTS (SELECT FROM subs u
                      LEFT JOIN agents a ON a.id = u.agent_id
                        AND a.status = 'ALIVE' AND a.ready AND NOT a.draining
                        AND a.detached_stream IS DISTINCT FROM a.stream
                      WHERE u.id = i.id AND a.id IS NULL)
      -- Kernels on several agents connect directly, so none of these agents may have begun to dial
      -- out.
      AND NOT EXISTS (SELECT FROM subs u JOIN agents a ON a.id IN (u.agent_id, i.agent_id)
                      WHERE u.id = i.id AND u.agent_id <> i.agent_id
                        AND a.address LIKE '%.agent.invalid')
      AND (s.attempt = 1
           OR coalesce(s.spec ->> 'overlap', CASE WHEN s.endpoint_id IS NOT NULL THEN 'allowed' END)
               = 'allowed'
           OR NOT EXISTS (SELECT FROM kernels e WHERE e.session_id = s.id AND e.attempt < s.attempt
                            AND e.status NOT IN (:TERMINAL)))
      -- After a backup was restored, an agent may run the session without the database's knowledge.
      -- Such an agent is not ready; the condition is stated so that the index agents_not_ready is
      -- used.
      AND (coalesce(s.spec ->> 'overlap', CASE WHEN s.endpoint_id IS NOT NULL THEN 'allowed' END)
               = 'allowed'
           OR NOT EXISTS (SELECT FROM agents n WHERE NOT n.ready AND (n.restored_at >= s.created_at
                OR n.unknown_kernels @> jsonb_build_array(jsonb_build_object('session_id', s.id)))))
    RETURNING s.id, s.revision, i.kernel_id, i.agent_id, i.places, s.spec ->> 'runtime' AS runtime,
              coalesce(s.spec ->> 'overlap', CASE WHEN s.endpoint_id IS NOT NULL THEN 'allowed' END)
                  = 'allowed' IS TRUE AS overlap,
              CASE WHEN coalesce(s.spec ->> 'on_lost_agent',
                                 CASE WHEN as_integer(s.spec -> 'retries') > 0
                                      THEN 'requeue' END) = 'requeue'
                   THEN coalesce(as_number(s.spec -> 'lease_s'), 600) END AS lease_s
), placed AS (
    SELECT kernel_id, agent_id, runtime, overlap, lease_s FROM moved
    UNION ALL SELECT u.kernel_id, u.agent_id, m.runtime, m.overlap, m.lease_s
    FROM subs u JOIN moved m USING (id)
), logged AS (
    INSERT INTO session_history (session_id, revision, event, from_status, to_status, actor, detail)
    SELECT id, revision, 'placed', 'PENDING', 'SCHEDULED', 'scheduler', 'on ' || places FROM moved
), kernels_placed AS (
    -- Most kernels have no lease, so their agents need not be read.
    UPDATE kernels k
    SET status = 'SCHEDULED', agent_id = m.agent_id, status_since = now(), overlap = m.overlap,
        lease_s = CASE WHEN m.lease_s IS NOT NULL AND m.runtime = ANY (
            SELECT unnest(a.lease_runtimes)
            FROM agents a WHERE a.id = m.agent_id) THEN m.lease_s END
    FROM placed m WHERE k.id = m.kernel_id
), taken AS (
    INSERT INTO allocations (kernel_id, agent_id, slot, device_id, amount)
    SELECT t.kernel_id, m.agent_id, t.slot, t.device_id, t.amount
    FROM takes t JOIN placed m USING (kernel_id)
), summed AS (
    SELECT m.agent_id, t.slot, t.device_id, sum(t.amount)::bigint AS amount
    FROM takes t JOIN placed m USING (kernel_id) GROUP BY 1, 2, 3
), locked AS (
    SELECT c.agent_id, c.slot, c.device_id, s.amount
    FROM agent_slots c JOIN summed s USING (agent_id, slot, device_id)
    ORDER BY 1, 2, 3 FOR NO KEY UPDATE OF c
), counted AS (
    -- A device that has become unhealthy since the snapshot counts as full: the same CHECK rejects
    -- its use.
    UPDATE agent_slots c
    SET used = CASE WHEN c.healthy THEN c.used + l.amount ELSE c.capacity + 1 END
    FROM locked l WHERE (c.agent_id, c.slot, c.device_id) = (l.agent_id, l.slot, l.device_id)
)
SELECT id FROM moved
