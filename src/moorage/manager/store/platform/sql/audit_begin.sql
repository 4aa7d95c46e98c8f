INSERT INTO audit_log (actor, user_name, project, from_address, request_id, action, resource, name,
                       before)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING id
