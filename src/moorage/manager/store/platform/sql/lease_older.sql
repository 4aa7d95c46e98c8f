-- Whether a manager leads that does not know the schema $1.
SELECT EXISTS (SELECT FROM leases WHERE name = 'leader' AND expires_at > now()
                 AND (schema IS NULL OR schema COLLATE "C" < $1)) AS leads
