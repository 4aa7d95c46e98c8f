"""The application's settings: its broker, which is also its result back end."""

broker_url = result_backend = "redis://127.0.0.1:6379/0"
