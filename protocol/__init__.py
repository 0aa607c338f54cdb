"""The commands, one file each, and the packages that they share.

May import: protocol, policies, splits, analysis, figures; torch, transformers.
"""

import sys

if sys.argv[:1] == ["-m"]:  # Python is starting a command typed as `python -m protocol...`
    from protocol.evidence.bytes.shown import put
    from protocol.evidence.lock import shadowed

    if line := shadowed.found():
        put(f"BadInput: {line}", sys.stderr)
        sys.exit(2)
