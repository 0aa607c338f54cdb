"""The process that runs math-verify.

Lines of JSON with two formulas come in; lines that say whether they are equal go out.

Started by protocol.grading.mathverify as `python -P worker.py BYTES SECONDS`; imports nothing else of ours.
BYTES limits its address space where the system can (Linux; macOS ignores or refuses the limit, and has the
deadline alone). SECONDS ends it for certain, should its parent have died while it computed.
"""

import importlib
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Any

NUMBER = re.compile(r"\s*(?:Integer\s*\(\s*[0-9]+\s*\)|Float\s*\(\s*'[0-9.]+'\s*\))\s*")


def main() -> None:
    size, seconds = int(sys.argv[1]), float(sys.argv[2])
    limit_memory(size)
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # parsers print to it
    compare = make_comparison()
    print(json.dumps({"ready": True}), file=replies)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_REAL, seconds)  # no handler: the system ends the process
        question = json.loads(line)
        is_same = compare(question["gold"], question["answer"])
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps({"same": is_same}), file=replies)


def limit_memory(size: int) -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size, size))
    except (ImportError, ValueError, OSError):  # not available on this system
        return


def make_comparison() -> Callable[[str, str], bool]:
    import math_verify
    from sympy.parsing import sympy_parser

    importlib.import_module("sympy.physics.units")  # otherwise imported late, and it sympifies text
    sympy_parser.eval_expr = restrict_to_numbers(sympy_parser.eval_expr)
    formula = [math_verify.LatexExtractionConfig()]  # plain expressions would go through parse_expr

    def compare(gold: str, answer: str) -> bool:
        """Return whether two formulas are equal. Running out of memory ends the process instead."""
        try:
            parsed = [
                math_verify.parse(f"${' '.join(text.split())}$", formula, parsing_timeout=None)
                for text in (gold, answer)
            ]
            return bool(math_verify.verify(*parsed, timeout_seconds=None, raise_on_error=True))
        except MemoryError:
            os._exit(1)
        except Exception:  # values that cannot be compared; math-verify calls them different
            return False

    return compare


def restrict_to_numbers(run: Callable[..., Any]) -> Callable[..., Any]:
    """Restrict sympy's last step from text to a value to numbers.

    sympify and parse_expr run Python code that they make from text. math-verify needs them for the digits of
    a formula, which its grammar has recognized; anything else is refused.
    """

    def only_numbers(code: object, *names: object) -> Any:
        if not isinstance(code, str) or not NUMBER.fullmatch(code):
            raise ValueError("text is never run as code")
        return run(code, *names)

    return only_numbers


if __name__ == "__main__":
    main()
