       -- `unmet_dependencies`: dependencies that are not met, each with whether it still can be.
       CASE WHEN s.dependencies > 0 THEN (
           SELECT jsonb_agg(jsonb_build_array(u.id,
                                              dependency_state(d.condition, u.status, u.result))
                            ORDER BY u.id)
           FROM session_dependencies d JOIN sessions u ON u.id = d.depends_on
           WHERE d.session_id = s.id
             AND dependency_state(d.condition, u.status, u.result)
                 <> 'met') END AS unmet_dependencies
