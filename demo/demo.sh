#!/bin/sh
# Runs in a closed network world (see `world up`), as root of the box: one session under nist-high, then its record.
set -u
ledger=/var/log/ringfence/demo.jsonl

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

say 'Without ringfence, as root, the attacks arrive:'
printf '  %-52s %s\n' "metadata service by address" \
  "$(curl -s -m 5 -o /dev/null -w '%{http_code}' "http://$WORLD_METADATA4/")"
printf '  %-52s %s\n' "a private address behind an admitted name" \
  "$(curl -s -m 5 -o /dev/null -w '%{http_code}' "http://$WORLD_NAME_OF_PRIVATE/")"
printf '  %-52s %s\n' "a stranger ($WORLD_STRANGER)" \
  "$(curl -s -m 5 -o /dev/null -w '%{http_code}' "https://$WORLD_STRANGER/")"

say 'The same machine under ringfence run --policy nist-high:'
ringfence run --policy nist-high --label demo=1 --workspace /workspace --ledger "$ledger" \
  -- sh /usr/local/lib/demo/session.sh
status=$?
say "The session ended with status $status. Its record:"
ringfence report "$ledger"
say 'And whether the record is whole:'
ringfence verify "$ledger"
verified=$?
[ "$status" -eq 0 ] && [ "$verified" -eq 0 ]
