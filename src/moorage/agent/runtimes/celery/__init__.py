"""Runtime ``celery``: sessions that call a task of a Celery application."""
