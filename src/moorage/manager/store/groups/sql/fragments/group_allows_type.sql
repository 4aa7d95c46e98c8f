      -- Whether group `g` allows sessions of the type of `i`.
      (CASE WHEN jsonb_typeof(g.options -> 'session_types') = 'array'
            THEN g.options -> 'session_types' ? i.type ELSE i.type IN (:ORDINARY) END)
