"""Audit the registrations that changed files belong to: for pre-commit, and for pull requests.

    kv-prereg audit-changed registrations/mine/lock.json      files, as pre-commit names them
    kv-prereg audit-changed --since origin/main               what HEAD changed since it left that
    kv-prereg audit-changed --since main --summary FILE       Markdown besides, for people

Each registration is audited as kv-prereg audit does, from its files alone. A study that is under way
passes, and so does one of which something cannot be told here: both are named. What fails is evidence that
does not hold, a registration that is a link, and, with --since, a locked registration that is not there
any more, or whose ledger lost lines when it was moved.

Exit status: 0 no registration failed; 2 bad input; 3 one failed, or is gone.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from protocol import command, witnesses
from protocol.acts import audit
from protocol.acts.again import changed
from protocol.acts.again.changed import Changed
from protocol.acts.audit import FAILED, UNFINISHED, UNTOLD, Audited
from protocol.evidence.bytes import shown
from protocol.evidence.outside import anchors
from protocol.evidence.refusals import BadInput, Refusal
from protocol.evidence.run.registration import Registration
from protocol.texts import audited as texts
from protocol.witnesses.remote import BRANCH

STANDS = {0: "held", FAILED: "failed", UNFINISHED: "unfinished", UNTOLD: "could not be told"}


ENDS = "or moved without all of its ledger: a study ends judged or withdrawn"


class Told(NamedTuple):
    """The result for one registration, and its text."""

    stands: str  # one of STATUS_NAMES, "not locked" or "gone"
    line: str
    page: list[str]  # the output of the audit if it failed
    audited: Audited | None = None


def main(argv: list[str] | None = None) -> int:
    parser = command.parser("protocol.audit_changed", __doc__)
    parser.add_argument("names", type=Path, nargs="*", metavar="FILE", help="a changed file")
    parser.add_argument("--since", metavar="COMMIT", help="what HEAD changed since it left this commit")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="append the result as Markdown")
    args = parser.parse_args(argv)
    return command.answer(args.json, lambda: act(args.names, args.since, args.summary, args.json))


def act(names: list[Path], since: str | None, summary: Path | None, as_json: bool) -> int:
    if since is not None and names:
        raise BadInput("FILE and --since: name the files, or the commit, not both")
    if missing := [name for name in names if not name.exists()]:
        raise BadInput(f"{missing[0]}: no such file; --since COMMIT knows those that were deleted")
    found = changed.of(names) if since is None else changed.since(since)
    told = tell(found)
    if summary:
        with summary.open("a", encoding="utf-8") as file:
            file.write(markdown(told))
    lines = [line for one in told for line in (*one.page, one.line)]
    values = {"registrations": [{"stands": one.stands, "said": one.line} for one in told]}
    command.say(as_json, "\n".join([*lines, counts(told)]), values)
    return FAILED if {one.stands for one in told} & {STANDS[FAILED], "gone"} else 0


def tell(found: Changed) -> list[Told]:
    gone = [Told("gone", f"{name}: was locked, and is gone, {ENDS}", []) for name in found.gone]
    written = [Told("not locked", f"{folder}: written, not locked", []) for folder in found.written]
    return [*gone, *(one(folder) for folder in found.registered), *written]


def one(folder: Path) -> Told:
    """Audit one folder. A refusal counts as a failure, since it is about a file of the change."""
    command.tell(f"auditing {folder}")
    study = Registration(folder)
    if folder.is_symlink():
        return Told(STANDS[FAILED], f"{folder}: is a link; a study is committed as files of its own", [])
    try:
        believed = witnesses.trusted(study, ca=None, headers=None, remote=None, branch=BRANCH)
        audited = audit.audit(study, believed)
    except Refusal as refused:
        return Told(STANDS[FAILED], f"{folder}: {type(refused).__name__}: {refused}", [])
    word = anchors.word(audited.anchored)
    line = "; ".join(
        filter(None, (f"{folder}: {audit.summary(audited)}", audited.said and f"{audited.said}, {word}"))
    )
    page = texts.page(study, audited.findings, anchored=word != "UNANCHORED") if audited.broken else []
    return Told(STANDS[audit.status(audited)], line, page, audited)


def counts(told: list[Told]) -> str:
    if not told:
        return "no registration was changed"
    return ", ".join(f"{number} {word}" for word, number in Counter(one.stands for one in told).items())


def markdown(told: list[Told]) -> str:
    """Format the results as Markdown. All text of a study is inside a code fence that it cannot close."""
    parts = [f"### Audit of changed registrations: {counts(told)}", *(_fenced(block(one)) for one in told)]
    return "\n\n".join(parts) + "\n\n"


def block(one: Told) -> list[str]:
    """Format one result. If the study was judged again here, draw that judgement as a text forest plot."""
    if one.audited is None or one.audited.judged is None:
        return [one.line, *one.page]
    from figures.canvas import numbers
    from figures.canvas.plain_forest import plain_forest

    judged = one.audited.judged
    return [
        one.line,
        str(judged["title"]),
        numbers.verdict_line(judged),
        "",
        *plain_forest(judged["contrasts"]),
    ]


def _fenced(lines: list[str]) -> str:
    text = "\n".join(shown.shown(" ".join(line.splitlines())) for line in lines)
    fence = "`" * max(3, 1 + max(map(len, _runs(text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


def _runs(text: str) -> list[str]:
    """Return the runs of consecutive backticks."""
    return "".join(letter if letter == "`" else " " for letter in text).split()


if __name__ == "__main__":
    sys.exit(main())
