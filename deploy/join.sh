#!/bin/sh
# Joins this machine to an installation, as an agent or as a proxy: installs the wheel in a separate
# environment and the systemd unit, joins with a token, and starts the unit. It can be run again;
# completed steps are kept.
set -eu

usage() {
  cat <<'END'
usage: deploy/join.sh --manager URL --wheel FILE [OPTION ...]

Installs moorage in /opt/moorage and the systemd unit of the agent, joins by a token, and starts the unit.
Run it as root, from a checkout or a copy of deploy/. A second run changes only what differs: with another wheel
it upgrades; a machine that has joined does not join again.

  --manager URL       REST API of a manager, such as http://manager.example.com:8700
  --wheel FILE        the wheel of moorage (`make release` builds it)
  --kind KIND         agent (the default) or proxy
  --token-file FILE   file with the join token. Default: standard input, with a prompt on a terminal
  --id NAME           name of the agent or proxy. Default: made from the host name
  --set NAME=VALUE    a variable of the unit, in /etc/moorage/KIND.env; may be given several times, such as
                      --set 'MOORAGE_AGENT__RUNTIMES=["process"]'
  --python PROGRAM    Python 3.11 or newer that the environment is made with. Default: python3
  --help              show this

Create a token on a machine with a manager: moorage join-tokens create   (with --proxy for a proxy)
END
}

fail() {
  echo "join.sh: $1" >&2
  exit "${2:-2}"
}

manager='' wheel='' kind=agent token_file='' id='' python=python3 variables=''
while [ $# -gt 0 ]; do
  case $1 in
    --help) usage; exit 0;;
    --manager | --wheel | --kind | --token-file | --id | --set | --python)
      [ $# -ge 2 ] || fail "$1 needs a value"
      case $1 in
        --manager) manager=$2;;
        --wheel) wheel=$2;;
        --kind) kind=$2;;
        --token-file) token_file=$2;;
        --id) id=$2;;
        --python) python=$2;;
        --set)
          case $2 in [A-Z]*=*) ;; *) fail "--set $2 is not NAME=VALUE";; esac
          variables="$variables$2
";;
      esac
      shift 2;;
    *) fail "unknown option $1; join.sh --help lists all";;
  esac
done

case $manager in
  http://?* | https://?*) ;;
  '') fail "--manager is missing: the address of a manager's REST API, such as http://manager.example.com:8700";;
  *) fail "--manager $manager is not an address that begins with http:// or https://";;
esac
case $kind in agent | proxy) ;; *) fail "--kind $kind is not agent or proxy";; esac
[ -n "$wheel" ] || fail "--wheel is missing: \`make release\` builds one into dist/"
[ -r "$wheel" ] || fail "--wheel $wheel cannot be read"
case $wheel in *.whl) ;; *) fail "--wheel $wheel is not a wheel: its name ends with .whl";; esac
[ -z "$token_file" ] || [ -r "$token_file" ] || fail "--token-file $token_file cannot be read"
command -v "$python" > /dev/null || fail "--python $python is not a program"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "--python $python is older than 3.11, which Moorage needs"
[ "$(id -u)" = 0 ] || fail "must run as root: it writes /opt/moorage, /etc and units" 1
command -v systemctl > /dev/null || fail "there is no systemctl: this machine has no systemd" 1

here=$(cd "$(dirname "$0")" && pwd)
unit=moorage-$kind home=/var/lib/moorage-$kind changed=''
[ -r "$here/systemd/$unit.service" ] || fail "$here/systemd/$unit.service is missing: copy deploy/ as a whole" 1

# An environment is complete when it has the digest of its wheel; an interrupted run leaves none.
digest=$(sha256sum "$wheel" | cut -d' ' -f1)-$kind
if [ "$(cat "/opt/moorage/.wheel-$kind" 2> /dev/null || true)" = "$digest" ]; then
  echo "/opt/moorage has this wheel"
else
  # Standard input may be the token.
  [ -x /opt/moorage/bin/python ] || "$python" -m venv /opt/moorage < /dev/null ||
    fail "$python cannot make an environment in /opt/moorage (Debian: apt install python3-venv)" 1
  # First the wheel itself, which may have the same version as the previous one, then its
  # dependencies.
  /opt/moorage/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps "$wheel" < /dev/null &&
    /opt/moorage/bin/pip install --quiet --disable-pip-version-check "$wheel[$kind]" < /dev/null ||
    fail "pip could not install $wheel" 1
  echo "$digest" > "/opt/moorage/.wheel-$kind"
  changed=yes
  echo "installed $(basename "$wheel") in /opt/moorage"
fi

install_if_different() {
  cmp -s "$1" "$2" && return
  install -m 644 "$1" "$2"
  changed=yes
}

install -d -m 755 /etc/sysusers.d
install_if_different "$here/systemd/moorage.sysusers" /etc/sysusers.d/moorage.conf
systemd-sysusers
install -d -o root -g moorage -m 750 /etc/moorage
install_if_different "$here/systemd/$unit.service" "/etc/systemd/system/$unit.service"
file=/etc/moorage/$kind.env
before=$(cat "$file" 2> /dev/null || true)
printf %s "$variables" | while IFS= read -r line; do
  grep -qxF -e "$line" "$file" 2> /dev/null && continue
  [ ! -e "$file" ] || sed -i "/^${line%%=*}=/d" "$file"
  echo "$line" >> "$file"
done
[ "$before" = "$(cat "$file" 2> /dev/null || true)" ] || changed=yes

owner=root
[ "$kind" = agent ] || owner=moorage
install -d -o "$owner" -g "$owner" -m 700 "$home"
if ls "$home/joined/$kind-"*.json > /dev/null 2>&1; then
  echo "this machine has joined already: $(ls "$home/joined")"
else
  set -- "$manager"
  [ -z "$id" ] || set -- "$@" --id "$id"
  [ -z "$token_file" ] || set -- "$@" --token-file "$token_file"
  MOORAGE_HOME=$home /opt/moorage/bin/moorage "$kind" join "$@" ||
    fail "the $kind could not join at --manager $manager" 1
  chown -R "$owner:$owner" "$home"
  changed=yes
fi

systemctl daemon-reload
systemctl enable "$unit"
# The running daemon is replaced only if something has changed. Kernels continue while their agent
# is restarted.
if [ -n "$changed" ]; then systemctl restart "$unit"; else systemctl start "$unit"; fi
echo "$unit runs; \`moorage peers\` on a machine with a manager shows it"
