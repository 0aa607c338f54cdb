"""The commands, one file each, and what they share; every room below is for them.

May import: protocol, policies, splits, analysis, figures; torch, transformers.
"""

import sys

if sys.argv[:1] == ["-m"]:  # Python is on its way to a command that was typed as `python -m protocol...`
    from protocol.evidence.bytes.shown import put
    from protocol.evidence.lock import shadowed

    if line := shadowed.found():
        put(f"BadInput: {line}", sys.stderr)
        sys.exit(2)
