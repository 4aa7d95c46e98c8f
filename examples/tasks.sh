#!/bin/sh
# A list of tasks in one session, some of which fail, and a second session with those that did.
set -eu
list=$(mktemp)
trap 'rm -f "$list"' EXIT
seq 1 20 >"$list"

# Multiples of 7 fail.
moorage run --name numbers --tasks "$list" --workers 4 --resources cpu=0.5 --resources mem=64MiB -- \
    sh -c 'echo "number $1"; test $(($1 % 7)) -ne 0' sh {} || true

moorage tasks list numbers --state FAILED
moorage tasks logs numbers 14
moorage tasks retry numbers --name numbers-again
