"""Sessions over REST: their life, their logs, their idle criteria and their templates."""
