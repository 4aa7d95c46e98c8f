#!/bin/sh
# A session that is held, changed, released, suspended, resumed and requeued: sh changes.sh
set -eu
until_status() { until moorage describe "$1" -o json | grep -q "\"status\": *\"$2\""; do sleep 0.2; done; }

# Nothing starts a held session. Its owner changes it, and lets it start.
moorage run --name first --cpus 0.1 --memory 16MiB --detach -- sleep 600
moorage run --name second --after first --cpus 0.1 --memory 16MiB --detach -- sleep 600
moorage update second --hold --priority 5 --time-limit 1h --label stage=test
moorage why second
until_status first RUNNING
moorage stop first

# A suspended session keeps its resources, and its time limit does not pass.
moorage run --name third --timeout 10m --cpus 0.1 --memory 16MiB --detach -- sleep 600
until_status third RUNNING
moorage suspend third
moorage ps
moorage resume third

# A requeued session starts again, without counting as a retry.
moorage requeue third
until_status third RUNNING
moorage describe third | grep attempt
moorage stop second third
