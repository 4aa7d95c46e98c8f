-- The members of project $2, if it is one of these ($1): all, or the user $3.
SELECT project, user_name AS "user", role, changed_at, changed_by FROM memberships
WHERE ($1::text[] IS NULL OR project = ANY ($1)) AND project = $2
  AND ($3::text IS NULL OR user_name = $3)
