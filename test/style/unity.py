"""Two files of a module give different names to what stands in their anonymous namespaces, so that -Dunity=on can
compile any of them as one. Functions may have one name if their parameters differ. Argument: ctags."""

import collections
import re
import sys

import includes
import sources
import tags

IN_ANONYMOUS_NAMESPACE = re.compile(r"(^|::)__anon\w+$")
LIBRARIES = re.compile(r"src/backend/gpu/cuda|src/\w+|\w+")  # each is compiled by itself


def check(ctags):
    files = collections.defaultdict(set)  # by library, name, and parameters of a function
    paths = sources.files(includes.FOLDERS, {".cpp"})
    for tag in tags.read(ctags, paths, kinds="fcseguv"):
        if IN_ANONYMOUS_NAMESPACE.search(tag.get("scope", "")):
            library = LIBRARIES.match(tag["path"])[0]
            files[library, tag["name"], tag.get("signature")].add(tag["path"])
    return [f"{name}: stands in the anonymous namespaces of {' and '.join(sorted(where))}; rename one"
            for (_, name, _), where in sorted(files.items(), key=str) if len(where) > 1]


sources.report(check(sys.argv[1]), "unity")
