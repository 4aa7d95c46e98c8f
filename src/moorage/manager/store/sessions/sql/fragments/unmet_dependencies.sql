       -- `unmet_dependencies`: dependencies that are not met, each with whether it still can be.
       CASE WHEN s.dependencies > 0 THEN (
           SELECT jsonb_agg(jsonb_build_array(o.depends_on, o.state) ORDER BY o.depends_on)
           FROM dependency_outcomes(s.id) o
           WHERE o.state <> 'met') END AS unmet_dependencies
