# A package as many are: a configure script that tries things out, a library and a program with make, and a sdist for pip.
# To be sourced; makes it in $1.
make_project() {
  mkdir -p "$1/src" "$1/python/pkg" "$1/node/lib"
  cat >"$1/configure" <<'END'
#!/bin/sh
set -e
prefix=/usr/local
for argument; do case $argument in --prefix=*) prefix=${argument#--prefix=} ;; esac; done
: >config.log
attempt() {
  printf '%s\n' "$2" >conftest.c
  if cc -o conftest conftest.c -lm >>config.log 2>&1 && ./conftest >>config.log 2>&1; then
    printf 'checking %s... yes\n' "$1"; printf '#define HAVE_%s 1\n' "$1" >>config.h.new
  else
    printf 'checking %s... no\n' "$1"
  fi
  rm -f conftest conftest.c
}
rm -f config.h.new; : >config.h.new
attempt STDIO '#include <stdio.h>
int main(void) { return puts("x") < 0; }'
attempt MATH '#include <math.h>
int main(int c, char **v) { (void)v; return sqrt(c) < 0; }'
attempt NOTHING '#include <there-is-no-such-header.h>
int main(void) { return 0; }'
attempt MMAP '#include <sys/mman.h>
int main(void) { return mmap(0, 1, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) == MAP_FAILED; }'
attempt TMPFILE '#include <stdio.h>
int main(void) { return !tmpfile(); }'
cmp -s config.h.new config.h || mv config.h.new config.h
rm -f config.h.new
sed "s,@prefix@,$prefix," Makefile.in >Makefile
chmod 444 config.h
END
  chmod 755 "$1/configure"
  cat >"$1/Makefile.in" <<'END'
prefix = @prefix@
all: libthing.a thing
libthing.a: src/one.o src/two.o
	ar rcs $@ src/one.o src/two.o
	ranlib $@
src/%.o: src/%.c config.h
	cc -O1 -MD -MP -c -o $@ $<
thing: src/main.o libthing.a
	cc -o $@ src/main.o libthing.a
	strip $@
check: thing
	./thing >result; grep -q 3 result
install: all
	install -d $(DESTDIR)$(prefix)/bin $(DESTDIR)$(prefix)/lib $(DESTDIR)$(prefix)/share/man/man1
	install -m 755 thing $(DESTDIR)$(prefix)/bin/thing
	install -m 644 libthing.a $(DESTDIR)$(prefix)/lib/libthing.a
	ln -sf thing $(DESTDIR)$(prefix)/bin/thing-2
	cp -p configure $(DESTDIR)$(prefix)/share/man/man1/thing.1
clean:
	rm -f src/*.o src/*.d libthing.a thing result
END
  printf 'int one(void) { return 1; }\n' >"$1/src/one.c"
  printf 'int two(void) { return 2; }\n' >"$1/src/two.c"
  printf '#include <stdio.h>\nint one(void), two(void);\nint main(void) { printf("%%d\\n", one() + two()); return 0; }\n' >"$1/src/main.c"
  printf '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n[project]\nname = "pkg"\nversion = "1.0"\n[project.scripts]\npkg = "pkg:main"\n[tool.setuptools]\npackages = ["pkg"]\n' >"$1/python/pyproject.toml"
  printf 'def main():\n    print("pkg")\n' >"$1/python/pkg/__init__.py"
  printf '{"name": "thing", "version": "1.0.0", "bin": {"thing-js": "lib/index.js"}, "files": ["lib"]}\n' >"$1/node/package.json"
  printf '#!/usr/bin/env node\nconsole.log("thing")\n' >"$1/node/lib/index.js"
  chmod 755 "$1/node/lib/index.js"
}
