-- The loads of engines that changed after $1, and the time for the next query. Every statement that
-- changes a load is short, so that changes become visible within the second that is subtracted.
SELECT now() - interval '1 s' AS next, ARRAY(
    SELECT jsonb_build_array(kernel_id, running, waiting, kv_cache)
    FROM engine_loads WHERE changed_at > $1) AS loads
