"""Fetch and list models.

    kv-prereg models list
    kv-prereg models fetch smollm2-135m
    kv-prereg models fetch hf:<owner>/<name>@<commit>

Fetching is the only step that uses the network; a model that is there is verified and left alone.
Files are kept below $KV_PREREG_HOME, or ~/.cache/kv-prereg. Exit status: 0 done, 2 refused, 3 wrong bytes.
"""

import sys

from protocol.evidence import extras
from protocol.evidence.bytes import usage
from protocol.evidence.bytes.shown import put
from protocol.evidence.refusals import BadInput, Refusal
from protocol.models import sources
from protocol.models.fetch import fetch


def main(argv: list[str] | None = None) -> int:
    parser = usage.parser("kv-prereg models", __doc__)
    acts = parser.add_subparsers(dest="act", required=True)
    acts.add_parser("list", help="the models by name, and which are here")
    acts.add_parser("fetch", help="download one model, or verify it").add_argument("source")
    args = parser.parse_args(argv)
    home = sources.home()
    if args.act == "list":
        for name, model in sources.MODELS.items():
            here = "fetched" if sources.place(name, home).is_dir() else "not fetched"
            put(f"{name}  [{here}]  {model.about}", sys.stdout)
        return 0
    try:
        put(f"{args.source}: {fetch(args.source, home)}", sys.stdout)
    except (Refusal, OSError) as refusal:
        put(f"{type(refusal).__name__}: {' '.join(str(refusal).split())}", sys.stderr)
        return refusal.exit_status if isinstance(refusal, Refusal) else Refusal.exit_status
    except ModuleNotFoundError as missing:
        put(f"{BadInput.__name__}: model {args.source!r}: {extras.needed(missing.name)}", sys.stderr)
        return BadInput.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
