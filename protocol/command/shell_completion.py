"""Print what a shell completes kv-prereg with: commands, options, registrations, names of policies and tasks.

    kv-prereg completion bash > ~/.local/share/bash-completion/completions/kv-prereg
    kv-prereg completion zsh > ~/.zfunc/_kv-prereg                with ~/.zfunc in fpath, before compinit
    kv-prereg completion fish > ~/.config/fish/completions/kv-prereg.fish

What is printed starts no Python when a key is pressed. Print it again after an upgrade.

Exit status: 0 printed; 2 not one of these shells.
"""

import sys
from pathlib import Path

from protocol.command.menu import PROGRAM
from protocol.formats import command_line
from protocol.formats.escape import print_escaped

__all__ = ["main"]

SCRIPTS = Path(__file__).parent / "completion"


def main(argv: list[str] | None = None) -> int:
    parser = command_line.make_parser(f"{PROGRAM} completion", __doc__)
    parser.add_argument("shell", choices=sorted(path.suffix[1:] for path in SCRIPTS.glob(f"{PROGRAM}.*")))
    shell = parser.parse_args(argv).shell
    print_escaped((SCRIPTS / f"{PROGRAM}.{shell}").read_text("utf-8"), sys.stdout, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
