-- name: elements_admit
-- Let elements of arrays take their turns: $1 pipeline, $2 step, $3 limit of each array.
SELECT id FROM admit_elements($1::uuid[], $2::text[], $3::int[]) AS a(id)

-- name: turns_leave
-- End the turns of elements that have ended. A manager of the previous release does not.
UPDATE pipeline_steps p SET turn = NULL FROM sessions s
WHERE p.turn IS NOT NULL AND s.id = p.session_id AND s.status IN (:TERMINAL)

-- name: arrays_waiting
-- The arrays of which elements wait for their turns (index pipeline_turns).
SELECT DISTINCT pipeline_id, step, at_once FROM pipeline_steps WHERE turn = 'waiting'
