"""Debian packages for the tests that need them: ``python -m tests.packages celery``.

Installs missing packages, and starts nothing. Exits with 1 and prints the reason if it fails.
"""

from __future__ import annotations

import shutil
import sys

from tests.containers.prepare import install

# Packages by marker, each with one of its programs.
PACKAGES = {
    "celery": {"redis-server": "redis-server"},
    "cluster": {
        "etcd-server": "etcd",
        "etcd-client": "etcdctl",
        "faketime": "faketime",
        "iproute2": "ip",
        "nftables": "/usr/sbin/nft",
        "pgbouncer": "/usr/sbin/pgbouncer",
        "postgresql": "pg_basebackup",
    },
    "coding": {},  # from npm
    "deploy": {
        "caddy": "caddy",
        "haproxy": "/usr/sbin/haproxy",
        "nginx": "/usr/sbin/nginx",
        "openssl": "openssl",
    },
    "etcd": {"etcd-server": "etcd", "etcd-client": "etcdctl"},
    "monitoring": {"prometheus": "promtool"},
    "ssh": {
        "openssh-client": "ssh",
        "openssh-sftp-server": "/usr/lib/openssh/sftp-server",
        "rsync": "rsync",
    },
}

if __name__ == "__main__":
    packages = PACKAGES[sys.argv[1]]
    reason = install(packages)
    absent = [name for name, program in packages.items() if not shutil.which(program)]
    if absent and not reason:
        reason = f"not installed: {', '.join(absent)}: run as root, or install them"
    print(reason)
    sys.exit(1 if reason else 0)
