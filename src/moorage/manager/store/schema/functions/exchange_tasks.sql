-- Records how tasks of a kernel ended, and gives it up to `wanted` others of its session's list.
-- Returns {"known": false} for a kernel that is not on this agent or has no list. Repeating it
-- changes nothing: an end counts only while the task is GIVEN to this kernel, and tasks whose `seq`
-- the kernel has not received are given again.
--
-- `is_over`: the kernel has ended. What it was given and has not ended returns to the list if
-- nothing of it can have started (`complete`), and is LOST otherwise. Tasks of kernels that have
-- ended without this report are LOST as well. The lock on the list makes all of this one step at a
-- time for each session.
CREATE OR REPLACE FUNCTION exchange_tasks(
    of_kernel uuid, on_agent text, received bigint, wanted integer, is_over boolean,
    complete boolean, numbers integer[], attempts integer[], states text[], codes integer[],
    starts float8[], durations float8[], outputs bytea[], details text[], most_output bigint
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    list session_task_lists;
    kernel_status text;
    next_seq bigint;
    again integer;
    given jsonb;
    remains boolean;
BEGIN
    SELECT k.status INTO kernel_status
    FROM kernels k WHERE k.id = of_kernel AND k.agent_id = on_agent;
    IF NOT FOUND THEN
        RETURN '{"known": false}';
    END IF;

    INSERT INTO session_task_lists (session_id, digest, total, retries)
    SELECT s.id, s.spec #>> '{tasks,digest}', as_integer(s.spec #> '{tasks,count}'),
           coalesce(as_integer(s.spec #> '{tasks,retries}'), 0)
    FROM kernels k JOIN sessions s ON s.id = k.session_id
    WHERE k.id = of_kernel AND s.spec ? 'tasks'
    ON CONFLICT DO NOTHING;
    SELECT l.* INTO list
    FROM kernels k JOIN session_task_lists l USING (session_id) WHERE k.id = of_kernel
    FOR UPDATE OF l;
    IF NOT FOUND THEN
        RETURN '{"known": false}';
    END IF;

    WITH told AS (
        SELECT * FROM unnest(numbers, attempts, states, codes, starts, durations, outputs, details)
            AS r(number, attempt, state, exit_code, started, seconds, output, detail)
    ), unknown AS (
        SELECT t.number, t.attempt, t.kernel_id = of_kernel AND complete AS unstarted
        FROM session_tasks t
        WHERE t.session_id = list.session_id AND t.state = 'GIVEN'
              AND (t.number, t.attempt) NOT IN (SELECT r.number, r.attempt FROM told r)
              AND (t.kernel_id = of_kernel AND is_over
                   OR EXISTS (SELECT FROM kernels k WHERE k.id = t.kernel_id
                              AND k.id <> of_kernel AND k.status IN (:TERMINAL)))
    ), returned AS (
        UPDATE session_tasks t SET state = 'WAITING', kernel_id = NULL, seq = NULL
        FROM unknown u
        WHERE t.session_id = list.session_id AND (t.number, t.attempt) = (u.number, u.attempt)
              AND u.unstarted
    ), ended AS (
        UPDATE session_tasks t
        SET state = e.state, exit_code = e.exit_code,
            started_at = CASE WHEN e.started > 0 THEN to_timestamp(e.started) END,
            seconds = e.seconds, detail = e.detail,
            output = CASE WHEN list.output_bytes < most_output THEN e.output END
        FROM (
            SELECT r.* FROM told r
            UNION ALL
            SELECT u.number, u.attempt, 'LOST', NULL, NULL, NULL, NULL,
                   'its kernel was lost; it may have run'
            FROM unknown u WHERE NOT u.unstarted
        ) e
        WHERE t.session_id = list.session_id AND (t.number, t.attempt) = (e.number, e.attempt)
              AND t.state = 'GIVEN' AND (t.kernel_id = of_kernel OR e.state = 'LOST')
        RETURNING t.number, t.attempt, t.state, length(t.output) AS size
    ), retried AS (
        INSERT INTO session_tasks (session_id, number, attempt, state)
        SELECT list.session_id, e.number, e.attempt + 1, 'WAITING'
        FROM ended e WHERE e.state <> 'SUCCEEDED' AND e.attempt <= list.retries
    ), counted AS (
        SELECT count(*) FILTER (WHERE e.state = 'SUCCEEDED') AS succeeded,
               count(*) FILTER (WHERE e.state = 'FAILED' AND e.attempt > list.retries) AS failed,
               count(*) FILTER (WHERE e.state = 'LOST' AND e.attempt > list.retries) AS lost,
               coalesce(sum(e.size), 0) AS size
        FROM ended e
    )
    UPDATE session_task_lists l
    SET succeeded = l.succeeded + c.succeeded, failed = l.failed + c.failed,
        lost = l.lost + c.lost, output_bytes = l.output_bytes + c.size
    FROM counted c WHERE l.session_id = list.session_id
    RETURNING l.* INTO list;

    IF NOT is_over AND kernel_status IN (:IN_ORDERS) THEN
        SELECT coalesce(max(t.seq), 0) INTO next_seq FROM session_tasks t
        WHERE t.kernel_id = of_kernel;
        SELECT count(*) INTO again FROM session_tasks t
        WHERE t.kernel_id = of_kernel AND t.seq > received AND t.state = 'GIVEN';

        WITH taken AS (
            SELECT t.number, t.attempt, row_number() OVER (ORDER BY t.number) AS n
            FROM session_tasks t WHERE t.session_id = list.session_id AND t.state = 'WAITING'
            ORDER BY t.number LIMIT greatest(wanted - again, 0)
        )
        UPDATE session_tasks t
        SET state = 'GIVEN', kernel_id = of_kernel, seq = next_seq + k.n
        FROM taken k
        WHERE t.session_id = list.session_id AND (t.number, t.attempt) = (k.number, k.attempt);
        GET DIAGNOSTICS again = ROW_COUNT;
        next_seq := next_seq + again;
        SELECT count(*) INTO again FROM session_tasks t
        WHERE t.kernel_id = of_kernel AND t.seq > received AND t.state = 'GIVEN';

        INSERT INTO session_tasks (session_id, number, attempt, state, kernel_id, seq)
        SELECT list.session_id, n, 1, 'GIVEN', of_kernel, next_seq + 1 + n - list.next
        FROM generate_series(list.next, least(list.total, list.next + wanted - again - 1)) n;
        UPDATE session_task_lists l
        SET next = greatest(l.next, least(l.total + 1, l.next + wanted - again))
        WHERE l.session_id = list.session_id RETURNING l.* INTO list;
    END IF;

    SELECT coalesce(jsonb_agg(jsonb_build_array(t.seq, t.number, t.attempt,
                                                w.lines[t.number - w.first + 1]) ORDER BY t.seq),
                    '[]')
    INTO given
    FROM session_tasks t
    JOIN task_lines w ON w.digest = list.digest AND w.first = (t.number - 1) / 1000 * 1000 + 1
    WHERE t.kernel_id = of_kernel AND t.seq > received AND t.state = 'GIVEN' AND NOT is_over;
    SELECT EXISTS (SELECT FROM session_tasks t
                   WHERE t.session_id = list.session_id AND t.state IN ('WAITING', 'GIVEN'))
    INTO remains;
    RETURN jsonb_build_object(
        'known', true, 'given', given, 'total', list.total, 'succeeded', list.succeeded,
        'failed', list.failed, 'lost', list.lost,
        'finished', list.next > list.total AND NOT remains);
END
$$;
