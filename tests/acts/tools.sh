# What people and agents run, where it is allowed and where it is refused. Each run shows its status, output and errors, and
# at the end stand the trees that came of it.
export LC_ALL=C TZ=UTC GIT_AUTHOR_DATE=2001-01-01T00:00:00Z GIT_COMMITTER_DATE=2001-01-01T00:00:00Z
export GIT_CONFIG_GLOBAL=/workspace/gitconfig PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1 PIP_NO_CACHE_DIR=1
export npm_config_update_notifier=false npm_config_fund=false npm_config_audit=false npm_config_offline=true
umask 022
. /usr/local/lib/project.sh
mkdir /workspace/said
t() {
  echo "== $*"
  "$@" >/workspace/said/out 2>/workspace/said/err
  echo "status $?"
  cat /workspace/said/out
  # Names that are drawn at random.
  sed -E 's/^/! /; s/sed[[:alnum:]]{6}:/sedNAME:/; s/tmp\.[[:alnum:]X]{10}/tmp.NAME/; s/(pip-[a-z-]*|tmp)[[:alnum:]_]{8}/\1NAME/g' /workspace/said/err
}
cd /workspace

t mkdir -p /usr/local/x/y
t mkdir -p /usr/local/lib/project
t mkdir -p x/y/z
t touch /etc/passwd
t touch /tmp/of-root
t touch -r /usr/local/lib/kept/file x/touched
t touch /usr/local/new
t touch -c /usr/local/missing
t rm -f /usr/local/missing
t rm -rf /usr/local/lib/kept
t rm -f /etc/passwd
t rm -r /tmp/of-root.d
t ln -s x/y link
t ln -s there /usr/local/link
t ln -sf there /usr/local/lib/kept/link
t mv x/touched /usr/local/touched
t mv /usr/local/lib/kept/file /workspace/moved
t chmod u+x /usr/local/lib/kept/file
t chmod 777 /tmp/of-root
t chown 0 x
t truncate -s 0 /usr/local/lib/kept/file
t sed -i s/kept/lost/ /usr/local/lib/kept/file
t dd if=/dev/zero of=/usr/local/lib/kept/file count=1 status=none
t sh -c 'echo x > /usr/local/lib/kept/file'
t sh -c 'echo x > /usr/local/lib/kept/new'
t tee /usr/local/lib/kept/new /workspace/teed
t mkfifo x/fifo
t mktemp -p /usr/local/lib/kept

# Modes, links, holes, times and a file that is closed to all.
mkdir -p source/deep/er; echo one >source/one; ln source/one source/deep/hard; ln -s ../one source/deep/soft
install -m 0 /dev/null source/closed; mkfifo source/fifo; truncate -s 100000 source/hole; chmod 2751 source/deep
touch -d 2001-02-03T04:05:06.789 source/one source/hole source/deep
t cp -a source copied
t cp -a source /usr/local/copied
t cp -a /usr/local/lib/kept kept
t cp -a source /usr/local/lib/kept/file
t cp source/one /usr/local/lib/kept/file
t cp -f source/one /usr/local/lib/kept/file
t cp --remove-destination source/one /usr/local/lib/kept/file
t install -D -m 750 source/one installed/one
t install -d -m 700 installed/dir
t install -D -m 750 source/one /usr/local/installed/one
t install -d /usr/local/installed
t install -o 0 source/one installed/two

t git config --global user.email a@example.org
t git config --global user.name A
t git config --global safe.directory '*'
t git init -q -b main repository
cp -a source/one repository/
t git -C repository add .
t git -C repository commit -q -m one
t git -C repository checkout -q -b other
echo two >repository/two
t git -C repository add two
t git -C repository commit -q -m two
t git -C repository checkout -q main
t git -C repository gc -q
t git -C repository status --short --branch
t git clone -q repository cloned
t git clone -q repository /usr/local/cloned
t git init -q /usr/local/repository
t git -C /usr/local/lib/repository commit --allow-empty -m three
t git -C repository rev-parse HEAD other

t tar -cpf source.tar --sort=name --exclude closed source
mkdir extracted
t tar -xpf source.tar -C extracted
t tar -xpf source.tar -C /usr/local
t tar -xpf /usr/local/lib/of-root.tar -C extracted
t tar -cf /usr/local/made.tar source/one

make_project thing
cd thing
t ./configure --prefix=/workspace/prefix
t make
t make install
t ./configure
t make install
t make install DESTDIR=/workspace/destination
t make -n clean
cd ..

t /usr/bin/python3 -m pip wheel -q --no-deps --no-build-isolation -w wheels thing/python
t /usr/bin/python3 -m pip install --no-deps --break-system-packages wheels/pkg-1.0-py3-none-any.whl
t /usr/bin/python3 -m pip install --no-deps --break-system-packages --ignore-installed --prefix /usr/local wheels/pkg-1.0-py3-none-any.whl
t /usr/bin/python3 -m pip install --no-deps --target site wheels/pkg-1.0-py3-none-any.whl
t /usr/bin/python3 -m pip uninstall -y --break-system-packages pkg
t /usr/bin/python3 -m pip install --no-deps wheels/pkg-1.0-py3-none-any.whl

t npm pack --silent ./thing/node
t npm install -g --prefix /workspace/npm ./thing-1.0.0.tgz
t npm install -g --prefix /usr/local ./thing-1.0.0.tgz
t npm install --prefix /usr/local/lib/kept ./thing-1.0.0.tgz

echo '== trees'
# Times that are set and not the clock's, sizes of files, no more of what holds the clock or random names.
find /workspace /tmp /usr/local/lib/kept /usr/local/lib/repository ~/.local -xdev \( -path '*/.git/objects/pack/*' -o -name '*.pyc' \
  -o -path /workspace/said -o -path '/tmp/npm-*' -o -path '/tmp/node-compile-cache*' \) -prune -o -printf '%p %M %U %G %y %l %T@\n' |
  awk '$NF > 1.2e9 { $NF = "now" } { print }' | sort
find /workspace -xdev -type f -perm -400 \( -path '*/.git/*' -o -name '*.whl' -o -name '*.tgz' -o -name '*.tar' -o -name '*.pyc' -o -path '/workspace/said/*' -o -name '*.a' \
  -o -name RECORD -o -name .package-lock.json -o -name direct_url.json \) -prune -o -type f -perm -400 -print0 | sort -z | xargs -0 sha256sum
echo end
