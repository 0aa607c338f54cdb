"""The commands, one file each, and the packages that they share.

May import: protocol, policies, splits, analysis, figures; shtab, torch, transformers.
"""

import sys

if sys.argv[:1] == ["-m"]:  # Python is starting a command typed as `python -m protocol...`
    from protocol.formats.escape import print_escaped
    from protocol.lock import package_shadowing

    if line := package_shadowing.find_shadowing():
        print_escaped(f"BadInput: {line}", sys.stderr)
        sys.exit(2)
