"""Run a confirmed study again, as a new registration of your own.

    kv-prereg replicate registrations/quickstart

Audits the parent first: what fails there is not repeated, what cannot be told there is named. Then it
registers a child in replications/ (parent's digest, your environment, your claim), confirms it on the same
held-out problems (with [randomness]: drawn anew), from the sources that it locked, and says whether it
agrees with its parent. The winner of a sweep is the parent's: a replication does not probe again. An
interrupted replication is continued by the same command.

Exit status: that of the child's verdict: 0 CONFIRMED; 10 REFUTED; 11 INCONCLUSIVE or SCREENED; 2 bad input; 3
drifted or tampered.
"""

import sys
from pathlib import Path
from typing import Any

from analysis.output.phases import phase
from protocol import command, witnesses
from protocol.acts import beforehand
from protocol.evidence.refusals import Tampered
from protocol.evidence.run.registration import Registration
from protocol.locked import tree
from protocol.models import sources
from protocol.running.executors import beforehand as executors
from protocol.running.executors.settings import Place, chosen, options


class Options(command.Options, Place):
    value: Path | None
    identity: Path | None
    headers: Path | None


def main(argv: list[str] | None = None, *, enter: bool = False) -> int:
    parser = command.parser("protocol.replicate", __doc__)
    command.folder(parser)
    parser.add_argument(
        "--value", type=Path, metavar="FILE", help="the late value of the replication, if one is registered"
    )
    command.identity(parser)
    parser.add_argument("--headers", type=Path, metavar="FOLDER", help="more headers of Bitcoin blocks")
    options(parser)
    args = parser.parse_args(argv, namespace=Options())
    return command.answer(args.json, lambda: act(args, enter), resumes=True)


def act(args: Options, enter: bool) -> int:
    parent, settings = Registration(args.folder), chosen(args)
    with phase(tree.words("checking the files of the parent")):
        beforehand.replicate(parent)
        executors.refuse(settings, parent.registered["generation"]["device"])
        untold = (
            [] if tree.held() else gaps(parent, args.headers)
        )  # in the locked tree the audit has already run
    for item in untold:
        command.tell(f"{parent.folder}: {item} could not be told; going on")
    # Imported late: torch is slow, and --help and the refusals above do not need it.
    with phase(tree.words("loading torch", "loading torch, compiled anew")):
        from figures.table import verdict_table
        from protocol.acts import judge, replicate
        from protocol.locked.study import open_study

    repeated = open_study(parent, sources.home())
    with phase("registering the replication"):
        child = replicate.begun(repeated)
        if enter:
            tree.enter(child.registration, "protocol.replicate")
    done = replicate.replicate(repeated, child, args.value, args.headers, args.identity, settings)
    judged, compared = done.judgement.judged, done.compared
    paths = [str(path) for path in done.judgement.files]
    lines = [verdict_table(judged), "", words(parent, compared), "", *judge.selected(judged), *paths]
    values = {"verdict": judged["verdict"], "files": paths, "parent": parent.lock.digest, **compared}
    command.say(args.json, "\n".join(lines), values)
    return command.STATUS[judged["verdict"]]


def gaps(parent: Registration, headers: Path | None) -> list[str]:
    """Return the audit items of the parent that cannot be checked here. Raises Tampered if one fails."""
    from protocol.acts import audit  # imports scipy

    audited = audit.audit(parent, witnesses.trusted(parent, headers=headers), audit.Asked(headers=headers))
    if audited.broken:
        first = next(one for one in audited.findings if one.status == "failed")
        raise Tampered(
            f"{parent.folder}: its audit fails ({', '.join(audited.broken)}), and nothing is built on it: "
            f"{first.item}: {first.detail[:200]}; see: kv-prereg audit {parent.folder}"
        )
    return audited.gaps


def words(parent: Registration, compared: dict[str, Any]) -> str:
    verb = "agrees with" if compared["agrees"] else "DISAGREES with"
    word, says = compared["parent_verdict"], compared["parent_rule_says"]
    given = word if word == says else f"{word}, the rule says {says}"
    if "lanes" not in compared:
        return (
            f"This replication {verb} {parent.folder.name} ({given}), with seeds and "
            "generated problems drawn anew: single answers are not compared."
        )
    return (
        f"This replication {verb} {parent.folder.name} ({given}): "
        f"{compared['same_text']} of {compared['lanes']} lanes gave the same text, "
        f"{compared['same_grade']} the same grade."
    )


if __name__ == "__main__":
    sys.exit(tree.run(main))
