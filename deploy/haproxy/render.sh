#!/bin/sh
# Writes HAProxy's configuration for a list of carat servers to standard output:
#   render.sh [options] HOST:PORT... > /etc/haproxy/haproxy.cfg && haproxy -c -f /etc/haproxy/haproxy.cfg
# Replicas are called r1, r2, ... in the order given, or by a name before the address: blue=10.0.0.1:8080.
set -eu

usage() {
  cat >&2 <<'EOF'
usage: render.sh [options] [NAME=]HOST:PORT...
  --bind ADDRESS     where clients connect (:8080)
  --per-replica N    most requests that one replica is given at a time (64): its -np, and some to prepare meanwhile;
                     others wait here
  --socket PATH      HAProxy's own control socket (/run/haproxy/admin.sock)
  --lua PATH         where hanging.lua is (/etc/haproxy/hanging.lua)
  --stream-timeout T how long a stream may be silent before its replica counts as hanging (45s): three times what
                     `carat serve --sse-ping-interval` says
  --check-interval T between two questions after a replica's health (1s)
  --check-timeout T  how long a replica may take to answer one (5s); two in a row, and it is down
EOF
  exit "${1:-1}"
}
fail() {
  echo "render.sh: $*" >&2
  exit 1
}

# is TEXT PATTERN: whether all of the text, which must be one line, matches.
is() {
  case $1 in *'
'*) return 1 ;; esac
  printf '%s\n' "$1" | grep -Eqx -- "$2"
}

template=$(dirname "$0")/carat.cfg
bind=:8080 per_replica=64 socket=/run/haproxy/admin.sock lua=/etc/haproxy/hanging.lua
stream_timeout=45s check_interval=1s check_timeout=5s
while [ $# -gt 0 ]; do
  case $1 in
    --help) usage 0 ;;
    --bind | --per-replica | --socket | --lua | --stream-timeout | --check-interval | --check-timeout)
      [ $# -ge 2 ] || fail "$1 needs a value"
      is "$2" '[]A-Za-z0-9.:/_@*,[-]+' || fail "$1 $2: there is a character in it that HAProxy would misunderstand"
      case $1 in
        --bind) bind=$2 ;;
        --per-replica) per_replica=$2 ;;
        --socket) socket=$2 ;;
        --lua) lua=$2 ;;
        --stream-timeout) stream_timeout=$2 ;;
        --check-interval) check_interval=$2 ;;
        --check-timeout) check_timeout=$2 ;;
      esac
      shift 2
      ;;
    -*) fail "there is no option $1; --help lists them" ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || usage
is "$per_replica" '[1-9][0-9]{0,8}' || fail "--per-replica $per_replica: give a number of requests"
for interval in "$stream_timeout" "$check_interval" "$check_timeout"; do
  is "$interval" '[1-9][0-9]*(ms|s|m)' || fail "$interval is not a time such as 500ms, 45s or 2m"
done

servers='' names=' ' number=0
for replica in "$@"; do
  number=$((number + 1))
  case $replica in
    *=*) name=${replica%%=*} address=${replica#*=} ;;
    *) name=r$number address=$replica ;;
  esac
  is "$name" '[A-Za-z0-9_.-]+' || fail "$replica: \"$name\" cannot be a name"
  is "$address" '([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):[1-9][0-9]{0,4}' ||
    fail "$replica: expected [NAME=]HOST:PORT, such as 10.0.0.1:8080"
  case $names in *" $name "*) fail "two replicas are called $name" ;; esac
  names="$names$name "
  servers="$servers    server $name $address
"
done

# A bound below twice the mean moves sessions where few requests run at the same time; two replicas need one, or all of
# what begins alike would go to one of them.
balance_factor=225
[ "$number" -gt 2 ] || balance_factor=175

SERVERS=$servers awk -v bind="$bind" -v per_replica="$per_replica" -v socket="$socket" -v lua="$lua" \
  -v stream_timeout="$stream_timeout" -v check_interval="$check_interval" -v check_timeout="$check_timeout" -v balance_factor="$balance_factor" '
  /^ *# replicas$/ { printf "%s", ENVIRON["SERVERS"]; skipping = 1; next }
  /^ *# end of replicas$/ { skipping = 0; next }
  skipping { next }
  $1 == "bind" { sub(/bind .*/, "bind " bind) }
  $1 == "stats" && $2 == "socket" { sub(/socket [^ ]+/, "socket " socket) }
  $1 == "default-server" { sub(/inter [^ ]+/, "inter " check_interval); sub(/maxconn [^ ]+/, "maxconn " per_replica) }
  $1 == "hash-balance-factor" { sub(/factor [^ ]+/, "factor " balance_factor) }
  $1 == "lua-load" { sub(/load [^ ]+/, "load " lua) }
  $1 == "timeout" && $2 == "check" { sub(/check [^ ]+/, "check " check_timeout) }
  $2 == "set-timeout" { sub(/server [^ ]+/, "server " stream_timeout) }
  { print }
' "$template"
