-- The shares of the limits of these subjects ($1), as revision 0 if there are none yet, and the
-- time. `room`: what remains of a budget; budgets that were not aggregated recently are omitted,
-- because their remainder is not known.
--
-- Subjects that are not a key, project, endpoint or budget are omitted as well, so that proxies
-- never store more rows than there are such subjects, no matter what they request. as_uuid accepts
-- one spelling of an id.
SELECT i.subject, coalesce(l.revision, 0) AS revision, coalesce(l.shares, '{}') AS shares,
       extract(epoch FROM clock_timestamp())::float8 AS now,
       CASE WHEN b.hard IS NOT NULL THEN greatest(0, b.hard - b.used) END AS room
FROM unnest($1::text[]) AS i(subject) LEFT JOIN limit_shares l USING (subject)
LEFT JOIN budgets b ON i.subject LIKE 'budget/%' AND b.hard IS NOT NULL
     AND b.scope = split_part(i.subject, '/', 2) AND b.period = split_part(i.subject, '/', 3)
     AND b.unit = split_part(i.subject, '/', 4)
     AND b.name = substring(i.subject FROM 'budget/[^/]*/[^/]*/[^/]*/(.*)')
WHERE CASE split_part(i.subject, '/', 1)
    WHEN 'key' THEN EXISTS (SELECT FROM api_keys k
                            WHERE k.id = as_uuid(to_jsonb(substring(i.subject FROM '^key/(.*)$'))))
    WHEN 'project'
    THEN EXISTS (SELECT FROM projects p WHERE p.name = substring(i.subject FROM '^project/(.*)$'))
    WHEN 'model' THEN EXISTS (SELECT FROM endpoints e
                              WHERE e.name = substring(i.subject FROM '^model/(.*)$')
                                AND e.deleted_at IS NULL)
    WHEN 'budget' THEN b.measured_at > now() - interval '15 s' AND b.resets_at > now() END
