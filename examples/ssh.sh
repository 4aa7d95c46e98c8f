#!/bin/sh
# A session and its files with OpenSSH alone: sh examples/ssh.sh HOST PORT KEY USER PROJECT SESSION
# The proxy has proxy.ssh_listen, and the key was registered with `moorage keys add-ssh KEY.pub`.
set -eu
host=$1 port=$2 key=$3 user=$4 project=$5 session=$6

# These options are usually in ~/.ssh/config.
config=$(mktemp)
trap 'rm -f "$config" "$config.hosts"' EXIT
cat > "$config" <<END
Host *
  Port $port
  IdentityFile $key
  IdentitiesOnly yes
  UserKnownHostsFile $config.hosts
  StrictHostKeyChecking accept-new
  LogLevel ERROR
END

# A command in the session, with its exit code.
ssh -F "$config" "$project/$session@$host" 'echo "hello from $(uname -s)"; exit 3' || echo "exit code $?"

# A local program, without a file in the session.
ssh -F "$config" -T "$project/$session@$host" 'sh -s' <<'END'
mkdir -p results
echo 0.93 > results/accuracy
END

# The files of all sessions, as /PROJECT/SESSION/...
sftp -q -F "$config" -b - "$user@$host" <<END
ls /$project/$session/results
put $0 /$project/$session/results/ssh.sh
END
scp -q -F "$config" "$user@$host:/$project/$session/results/accuracy" "$config.hosts.accuracy"
echo "accuracy $(cat "$config.hosts.accuracy")"
rm "$config.hosts.accuracy"
