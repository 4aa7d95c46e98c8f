            -- The session types that group `g` allows.
            CASE WHEN jsonb_typeof(g.options -> 'session_types') = 'array'
                 THEN ARRAY(
                     SELECT jsonb_array_elements_text(as_array(g.options -> 'session_types')))
                 ELSE ARRAY[:ORDINARY] END
