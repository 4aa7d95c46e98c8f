#!/bin/sh
# A system session: copy a directory to a node and check it there, without a GPU and apart from
# compute quotas. sh examples/system_session.sh HOST PORT KEY PROJECT DIRECTORY An administrator
# must have allowed the type (moorage groups set default
# session_types=interactive,batch,inference,system); the proxy has proxy.ssh_listen, and the key was
# registered with `moorage keys add-ssh KEY.pub`.
set -eu
host=$1 port=$2 key=$3 project=$4 directory=$5

moorage start --type system --name copies --workspace keep --idle-timeout 1h --resources cpu=0.1 --resources mem=256MiB

hosts=$(mktemp)
trap 'rm -f "$hosts"' EXIT
ssh="ssh -p $port -i $key -o IdentitiesOnly=yes -o UserKnownHostsFile=$hosts -o StrictHostKeyChecking=accept-new -o LogLevel=ERROR"

# rsync runs on both sides: a second copy sends only what has changed.
rsync -e "$ssh" -a "$directory/" "$project+copies@$host:data/"

# The check runs near the data.
(cd "$directory" && find . -type f -exec sha256sum {} +) | $ssh "$project+copies@$host" 'cd data && sha256sum --check --quiet && echo "all files are the same"'

moorage stop copies --wait
