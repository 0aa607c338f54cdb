"""What evidence costs to read, check and judge, in processor time a lane, here and in another checkout, in turns.

    OPENBLAS_NUM_THREADS=1 python benchmarks/evidence.py alpha-chain --against ../before --rounds 3

`--streamed` treats every shard as larger than what is kept in memory, as those of a million lanes are. Each round is a
process of its own in each checkout. Prints a row a part: the medians of both, and of their ratio in a round, with its
range.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import process_time

ROOT = Path(__file__).resolve().parents[1]


ITEMS = ("files", "probe", "claim", "records", "trajectories", "grid", "sense", "grades", "seal")
"""Items of an audit that pass over the lanes; in the first, their lines are read and verified."""


def measure(name: str, streamed: bool) -> dict[str, float]:
    """Return microseconds a lane of each part, by the code of the working folder."""
    sys.path.insert(0, os.getcwd())
    from analysis.judgement import study_files
    from protocol import audit
    from protocol.evidence import record_lines, records, seal
    from protocol.evidence.registration import Registration
    from protocol.recompute import verify_judgement

    if streamed:
        record_lines.MAX_PARSED_BYTES = 0
    seconds: dict[str, float] = {}

    @contextmanager
    def timed(part: str) -> Iterator[None]:
        start = process_time()
        yield
        seconds[part] = process_time() - start

    study = Registration(Path("registrations") / name)
    vars(audit)["phase"] = lambda label: timed(label.removeprefix("auditing: "))
    audit.audit(study)
    with records.pause_gc():
        with timed("table of the judge"):
            verify_judgement.read_for_judgement(study)
        held_out, probed = len(study.confirm_records), len(study.probe_records)
        again = study.reopen()
        with timed("sealing"):
            seal.make_content(again, study.seal.content["ledger"])
        del again
        with timed("`judge`: its table, from the files"):
            study_files.read_study(study.folder)
    taken = {part: 1e6 * seconds[part] / (held_out + probed) for part in ITEMS}
    taken |= {part: 1e6 * seconds[part] / held_out for part in list(seconds)[-3:]}
    return taken | {"all items, and the table": sum(taken[part] for part in (*ITEMS, "table of the judge"))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study")
    parser.add_argument("--against", type=Path, default=ROOT, help="another checkout, of the code before")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streamed", action="store_true")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        print(json.dumps(measure(args.study, args.streamed)))
        return
    command = [sys.executable, __file__, args.study, "--once", *(["--streamed"] if args.streamed else [])]
    rounds = [
        [json.loads(subprocess.check_output(command, cwd=tree)) for tree in (args.against, ROOT)]
        for _ in range(args.rounds)
    ]
    print("| microseconds a lane | before | now | ratio |\n|---|---:|---:|---:|")
    for part in rounds[0][0]:
        before, now = ([each[side][part] for each in rounds] for side in (0, 1))
        ratios = sorted(one / other for one, other in zip(now, before, strict=True))
        spread = f"{median(ratios):.2f} [{ratios[0]:.2f}, {ratios[-1]:.2f}]"
        print(f"| {part} | {median(before):.0f} | {median(now):.0f} | {spread} |")


if __name__ == "__main__":
    main()
