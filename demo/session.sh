#!/bin/sh
# What an agent's shell may try: it meets ordinary answers. Each line says what was tried and what came of it; the status
# is the number of steps that came out otherwise than they should.
wrong=0

# step OUTCOME EXPECTED WHAT COMMAND…: runs the command and looks for EXPECTED in the first line of its output, which
# shows that the OUTCOME is the one named.
step() {
  outcome=$1 expected=$2 what=$3
  shift 3
  seen=$("$@" 2>&1 </dev/null | head -n 1)
  case $seen in
    *"$expected"*) colour=$GOOD ;;
    *) outcome='not so!' colour=$BAD wrong=$((wrong + 1)) ;;
  esac
  # Of a message the cause is enough, which stands last; curl puts the time it took before it.
  cause=$(printf '%s' "$seen" | sed -e 's/^curl: .* after \([0-9]* ms\): /connection failed after \1: /' -e '/^connection/!s/.*: //')
  printf '  %s%-8s%s %-55s %.60s\n' "$colour" "$outcome" "$PLAIN" "$what" "$cause"
}

code() { curl -s -m 10 -o /dev/null -w '%{http_code}\n' "$@"; }
tunnel() { curl -s -m 10 -o /dev/null -w '%{http_connect} to CONNECT\n' "$@"; }
direct() { curl -sS -m 5 --noproxy '*' -o /dev/null "$@"; }
write() { touch "$1" && echo "written"; }
clone() { git clone -q https://github.com/project.git && cat project/README; }

printf '  uid %s, groups %s, in %s\n\n' "$(id -u)" "$(id -G)" "$(pwd)"
step allowed '200' 'fetch an admitted name, https://pypi.org/' code https://pypi.org/
step allowed 'a project' 'git clone https://github.com/project.git' clone
step allowed 'written' 'write to the workspace' write ./notes
step refused '403' "fetch a name that is not admitted, $WORLD_STRANGER" tunnel "https://$WORLD_STRANGER/"
step refused '403' "fetch an admitted name that leads to $WORLD_PRIVATE4" code "http://$WORLD_NAME_OF_PRIVATE/"
step refused '403' "fetch an admitted name that leads to $WORLD_METADATA4" code "http://$WORLD_NAME_OF_METADATA/"
step refused 'connect' "skip the proxy, to $WORLD_PUBLIC4" direct "http://$WORLD_PUBLIC4/"
step refused 'connect' 'skip the proxy, to the metadata service' direct "http://$WORLD_METADATA4/"
step refused 'connect' "skip the proxy, to [$WORLD_PUBLIC6]" direct "http://[$WORLD_PUBLIC6]/"
step refused 'Read-only file system' 'write to /usr' write /usr/agent
step refused 'Read-only file system' 'write to /etc' write /etc/agent
step refused 'Operation not permitted' 'become root by setpriv' setpriv --reuid 0 id -u
step refused 'su: ' 'become root by su' su -c 'id -u' root
if command -v sudo >/dev/null; then step refused 'sudo: ' 'become root by sudo' sudo -n id -u; fi
step refused 'superuser' 'mount a tmpfs' mount -t tmpfs none /tmp
exit $wrong
