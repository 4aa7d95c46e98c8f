-- Deleted secrets to which no live session or endpoint refers. The hour covers a session whose
-- creation had found the secret when it was deleted.
DELETE FROM secrets x WHERE deleted_at < now() - interval '1 hour'
  AND NOT EXISTS (
    SELECT FROM sessions s WHERE s.project = x.project AND s.status NOT IN (:TERMINAL)
      AND EXISTS (SELECT FROM jsonb_each_text(as_object(s.spec -> 'secret_env')) e
                  WHERE e.value = x.name))
  AND NOT EXISTS (
    SELECT FROM endpoints p WHERE p.project = x.project AND p.deleted_at IS NULL
      AND (EXISTS (SELECT FROM jsonb_each_text(as_object(p.spec -> 'secret_env')) e
                   WHERE e.value = x.name)
           OR jsonb_path_exists(p.serving, '$.routing.fallbacks[*] ? (@.secret == $name)',
                                jsonb_build_object('name', x.name))))
RETURNING name
