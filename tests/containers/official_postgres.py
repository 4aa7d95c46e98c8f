"""A Postgres image that does what the official image's entry point does, made from this machine's
programs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from .daemon_image import build
from .postgres_image import POSTGRES_IMAGE, import_postgres

IMAGE = f"{POSTGRES_IMAGE}-official"
_START = """#!/bin/sh
set -e
data=/var/lib/postgresql/data
if test ! -e $data/PG_VERSION; then
  read -r password < "$POSTGRES_PASSWORD_FILE" || test -n "$password"
  echo "$password" > /tmp/password
  initdb -D $data -U "$POSTGRES_USER" --pwfile=/tmp/password --auth=scram-sha-256 --locale=C --encoding=UTF8
  echo "host all all all scram-sha-256" >> $data/pg_hba.conf
  echo "CREATE DATABASE $POSTGRES_DB" | postgres --single -D $data postgres
  if test -d /docker-entrypoint-initdb.d; then
    export PGDATA=$data PGHOST=/tmp PGPASSWORD="$password"
    pg_ctl -D $data -w -o "-c listen_addresses='' -k /tmp" start
    for file in /docker-entrypoint-initdb.d/*.sh; do . $file; done
    pg_ctl -D $data -w -m fast stop
  fi
fi
shift
exec postgres -D $data "$@"
"""
_DOCKERFILE = f"""FROM {POSTGRES_IMAGE}
USER 0
COPY start /start
COPY --chown=999:999 run/ /var/run/postgresql/
COPY --chown=999:999 data/ /var/lib/postgresql/data/
USER 999
ENTRYPOINT ["/bin/sh", "/start"]
CMD ["postgres"]
"""


def ensure(api: Any, socket: Path, folder: Path, bin_dir: Path) -> None:
    """Build the image unless the engine at ``socket`` has it. ``bin_dir``: the Postgres programs;
    ``folder`` must be accessible to the engine."""
    if api.images(IMAGE):
        return

    import_postgres(socket, folder, bin_dir)
    with tempfile.TemporaryDirectory(dir=folder) as context:
        for name in ("data", "run"):
            Path(context, name).mkdir()

        Path(context, "start").write_text(_START)
        build(api, Path(context), _DOCKERFILE, IMAGE, args={})
