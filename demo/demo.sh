#!/bin/sh
# Runs in a closed network world (see `world up`), as root of the box: the attacks as they arrive without ringfence, the
# same attacks in one session under nist-high, then the session's record.
set -u
ledger=/var/log/ringfence/demo.jsonl
BOLD='' GOOD='' BAD='' PLAIN=''
if [ -t 1 ]; then
  BOLD=$(printf '\033[1m') GOOD=$(printf '\033[32m') BAD=$(printf '\033[31m') PLAIN=$(printf '\033[0m')
fi
export GOOD BAD PLAIN

title() { printf '\n%s%s%s\n\n' "$BOLD" "$*" "$PLAIN"; }
arrives() { printf '  arrives  %-55s %s\n' "$1" "$(curl -s -m 5 -o /dev/null -w '%{http_code}' "$2")"; }

title '1. Without ringfence, as root, every attack arrives'
arrives "a stranger, $WORLD_STRANGER" "https://$WORLD_STRANGER/"
arrives "an admitted name that leads to $WORLD_PRIVATE4" "http://$WORLD_NAME_OF_PRIVATE/"
arrives "an admitted name that leads to $WORLD_METADATA4" "http://$WORLD_NAME_OF_METADATA/"
arrives "the metadata service by its address" "http://$WORLD_METADATA4/"
arrives "an IPv6 address" "http://[$WORLD_PUBLIC6]/"

title '2. One session under ringfence run --policy nist-high --workspace /workspace'
ringfence run --policy nist-high --label demo=1 --workspace /workspace --ledger "$ledger" --json-status-fd 3 \
  -- sh /usr/local/lib/demo/session.sh 3>/tmp/status.json
status=$?

title '3. Its record: ringfence report'
ringfence report "$ledger"

title '4. Is it whole? ringfence verify, against the head that --json-status-fd gave'
head=$(sed -n 's/.*"head":"\([0-9a-f]*\)".*/\1/p' /tmp/status.json)
printf '  as it is:                '
ringfence verify "$ledger" --head "$head"
whole=$?
sed 's/stranger/Stranger/' "$ledger" >/tmp/changed.jsonl
printf '  with one letter changed: '
ringfence verify /tmp/changed.jsonl
changed=$?
sed '$d' "$ledger" >/tmp/short.jsonl
printf '  without its last line:   '
ringfence verify /tmp/short.jsonl
short=$?
echo

denials=$(grep '"kind":"denial"' "$ledger")
network=$(echo "$denials" | grep -c '"axis":"network"')
# What su and mount try beside what the session asks for is theirs, and differs between images.
missing=''
for sign in '"path":"/usr/agent"' '"path":"/etc/agent"' '"text":"uid 0"' '"rule":"set-id"' '"operation":"mount"'; do
  echo "$denials" | grep -qF "$sign" || missing="$missing $sign"
done
if [ "$status $whole $changed $short $network" != '0 0 2 1 6' ] || [ -n "$missing" ]; then
  printf '%sNot as it should be: session %s, verify %s %s %s, denials of the network %s of 6, missing:%s%s\n' \
    "$BAD" "$status" "$whole" "$changed" "$short" "$network" "${missing:- none}" "$PLAIN" >&2
  exit 1
fi
