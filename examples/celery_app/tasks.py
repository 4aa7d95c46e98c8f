"""A Celery application whose tasks sessions call: ``agent.celery_app = "tasks"``.

It knows nothing about Moorage. ``celeryconfig.py`` next to it names its broker.
"""

import os
import time

from celery import Celery

app = Celery("tasks")
app.config_from_object("celeryconfig")


@app.task(bind=True)
def train(self, epochs, rate=0.1):
    """Its state is the session's progress, and its return value the last line of the session's
    log."""
    loss = 1.0
    for epoch in range(1, epochs + 1):
        time.sleep(0.2)
        loss -= rate
        self.update_state(meta={"current": epoch, "total": epochs, "message": f"loss {loss:.2f}"})
    return {"loss": round(loss, 2), "devices": os.environ.get("CUDA_VISIBLE_DEVICES", "")}


@app.task
def fail(text):
    raise ValueError(text)
