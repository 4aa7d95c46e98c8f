-- The shares of the limits of these subjects ($1), as revision 0 if there are none yet, and the time.
SELECT i.subject, coalesce(l.revision, 0) AS revision, coalesce(l.shares, '{}') AS shares,
       extract(epoch FROM clock_timestamp())::float8 AS now
FROM unnest($1::text[]) AS i(subject) LEFT JOIN limit_shares l USING (subject)
