#!/bin/sh
# What an agent's shell may try. It sees ordinary errors; each line says what was tried and what came of it.
# The status is the number of steps that came out otherwise than they should.
wrong=0

# step EXPECTED WHAT COMMAND…: runs the command and compares the first line of its output.
step() {
  expected=$1 what=$2
  shift 2
  seen=$("$@" 2>&1 </dev/null | head -n 1)
  case $seen in
    *"$expected"*) mark=' ' ;;
    *) mark='!' wrong=$((wrong + 1)) ;;
  esac
  printf '%s %-52s %s\n' "$mark" "$what" "$seen"
}

code() { curl -s -m 10 -o /dev/null -w '%{http_code} (CONNECT %{http_connect})\n' "$@"; }
write() { touch "$1" && echo "written to $1"; }
# A client that knows nothing of proxies.
direct() { curl -sS -m 5 --noproxy '*' -o /dev/null -w '%{http_code}\n' "$@"; }

printf 'I am uid %s, groups %s\n' "$(id -u)" "$(id -G)"
step '200 ' 'an admitted name: https://pypi.org/' code https://pypi.org/
step 'a project' 'git clone https://github.com/project.git' \
  sh -c 'git clone -q https://github.com/project.git && cat project/README'
step 'CONNECT 403' "a name that is not admitted: $WORLD_STRANGER" code "https://$WORLD_STRANGER/"
step '403 ' "an admitted name that resolves to $WORLD_PRIVATE4" code "http://$WORLD_NAME_OF_PRIVATE/"
step '403 ' "an admitted name that resolves to $WORLD_METADATA4" code "http://$WORLD_NAME_OF_METADATA/"
step 'ailed to connect' 'past the proxy, to a public address' direct "http://$WORLD_PUBLIC4/"
step 'ailed to connect' 'past the proxy, to the metadata service' direct "http://$WORLD_METADATA4/"
step 'ailed to connect' 'past the proxy, over IPv6' direct "http://[$WORLD_PUBLIC6]/"
step 'Read-only file system' 'a write to /usr' write /usr/agent
step 'Read-only file system' 'a write to /etc' write /etc/agent
step 'written to' 'a write to the workspace' write ./notes
step 'setresuid failed: Operation not permitted' 'root by setpriv' setpriv --reuid 0 id -u
step 'su: ' 'root by su' su -c 'id -u' root
command -v sudo >/dev/null && step 'sudo: ' 'root by sudo' sudo -n id -u
step 'mount: ' 'a mount' mount -t tmpfs none /tmp
exit $wrong
