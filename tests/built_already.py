"""For compilers of tests that begin with an empty cache: objects that any kernel needs are copied, not built.

They take a minute to build. Their names in the cache are hashes of all that they are made of.
"""

from __future__ import annotations

import shlex

from cudamaster.core import resources
from cudamaster.devices.cpu import toolchain


def taken(*, seconds: float = 0) -> str:
    """Lines of sh for a compiler that is a script: they copy an object of the tests' cache, after so many seconds.

    An object that is not there is left to the lines that follow.
    """
    known, cache = toolchain.fingerprint(), shlex.quote(str(resources.cache()))
    # The name of an executor begins with a hash of the compiler, which is another one here.
    return f"""\
for target; do :; done
case $target in *.o-making-*/*.o)
    name=$(basename "${{target%/*}}")
    name=${{name%-making-*}}
    for kept in {cache}/cpu/{known}/harnesses/"$name" {cache}/cpu-runtime/{known}"${{name#{"?" * len(known)}}}"; do
        [ -f "$kept" ] && sleep {seconds} && exec cp "$kept" "$target"
    done ;;
esac
"""
