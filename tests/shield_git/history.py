"""A history for git fast-import: COMMITS commits on main, every twentieth a merge of a short branch, and a hundred more on
future that build on the last one and change the same files."""
import sys

out = sys.stdout.buffer
commits, mark, files = int(sys.argv[1]), 0, {}


def commit(ref, number, token, parents):
    global mark
    mark += 1
    path = "part_%02d/sub_%d/file_%d" % (number % 23, number % 3, number % 5)
    lines = files.setdefault(path, ["line %d of %s" % (at, path) for at in range(120)])
    lines[number % 120] = "%s %d" % (token, number)
    text, message = "\n".join(lines).encode(), b"%s %d\n" % (token.encode(), number)
    out.write(b"commit %s\nmark :%d\ncommitter a <a@a.test> %d +0000\n" % (ref, mark, 1_000_000_000 + number))
    out.write(b"data %d\n%s" % (len(message), message))
    for word, parent in zip((b"from", b"merge"), parents):
        out.write(b"%s :%d\n" % (word, parent))
    out.write(b"M 100644 inline %s\ndata %d\n%s\n" % (path.encode(), len(text), text))
    return mark


last = commit(b"refs/heads/main", 0, "past", [])
for number in range(1, commits):
    if number % 20 == 0:
        side = commit(b"refs/heads/side", number + commits, "side", [last])
        last = commit(b"refs/heads/main", number, "merge", [last, side])
    else:
        last = commit(b"refs/heads/main", number, "past", [last])
for number in range(100):
    last = commit(b"refs/heads/future", number, sys.argv[2], [last])
