"""Fetch and list models.

    kv-prereg models list
    kv-prereg models fetch smollm2-135m
    kv-prereg models fetch hf:<owner>/<name>@<commit>

Fetching is the only step that uses the network; a model that is there is verified and left alone.
Files are kept below $KV_PREREG_HOME, or ~/.cache/kv-prereg. Exit status: 0 done, 2 refused, 3 wrong bytes.
"""

import sys

from protocol.formats import command_line, extras, files
from protocol.formats.escape import print_escaped
from protocol.formats.refusals import BadInput, Refusal
from protocol.models import sources
from protocol.models.fetch import fetch


def main(argv: list[str] | None = None) -> int:
    parser = command_line.make_parser("kv-prereg models", __doc__)
    subcommands = parser.add_subparsers(dest="act", required=True)
    subcommands.add_parser("list", help="list the models by name, and which of them are on this machine")
    subcommands.add_parser("fetch", help="download one model, or verify it").add_argument("source")
    args = parser.parse_args(argv)
    try:
        home = files.cache_home()
        if args.act == "list":
            for name, model in sources.MODELS.items():
                status = "fetched" if sources.model_folder(name, home).is_dir() else "not fetched"
                print_escaped(f"{name}  [{status}]  {model.about}", sys.stdout)
            return 0
        print_escaped(f"{args.source}: {fetch(args.source, home)}", sys.stdout)
    except (Refusal, OSError) as refusal:
        return command_line.report_refusal(refusal)
    except ImportError as missing:  # transformers raises one without a name for gguf
        print_escaped(f"{BadInput.__name__}: model {args.source!r}: {extras.install_hint(missing.name)}", sys.stderr)
        return BadInput.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
