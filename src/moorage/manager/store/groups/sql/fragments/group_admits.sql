      -- Whether the owner of `i` may use group `g`. `admits` in identity/limits.py decides the
      -- same.
      (g.retired_at IS NULL AND (
           (jsonb_typeof(g.options -> 'projects') IS DISTINCT FROM 'array'
            AND jsonb_typeof(g.options -> 'users') IS DISTINCT FROM 'array')
           OR coalesce(g.options -> 'projects' ? i.project, false)
           OR coalesce(g.options -> 'users' ? i.owner, false)))
