"""A small registration written through the evidence layer alone: toy sources, two arms, three problems."""

import copy
from pathlib import Path

from protocol.evidence import claim, ledger, records, seal, verdict
from protocol.evidence.held_out_guard import HeldOutGuard
from protocol.evidence.registration import Registration
from protocol.evidence.shard_writer import ShardWriter
from protocol.lock import bundle, closure, installed_versions, lock
from protocol.lock.lock import Lock

SHARES = {"low": "0.000000", "share": "0.010000", "high": "0.020000"}
CHECKS = {
    "tests": 1,
    "corrected_alpha": "0.050000",
    "problems": {},
    "golds": {},
    "scored": [],
    "rule": {"verdicts": {}, "gates": {}},
    "decision_errors": {
        "confirmed": SHARES,
        "refuted": SHARES,
        "discordance": "0.17",
        "setting": "nothing",
        "studies": 10,
    },
    "same_kept": {"pairs": [], "on": {}, "left_out": []},
}
ENVIRONMENT = {
    **dict.fromkeys(("python", "implementation", "system", "machine"), "any"),
    "library": "0" * 64,
    **{field: {} for field in ("distributions", "altered", "own")},
    "torch": {**dict.fromkeys(("build", "cpu", "device", "version"), "any"), "threads": 1},
}
ARMS = ("full", "crystal")
CONFIRM = ("p2", "p3", "p4")
PROTOCOL = b'title = "toy"\n'
ROOM = 128  # bytes: 4 heads with room for 16 slots of 2 bytes

# Counts correct answers by arm, reading the folder as anybody's script would.
JUDGE = """
import json, sys
from collections import Counter
from pathlib import Path

lines = Path(sys.argv[1], "records", "shard-0.jsonl").read_text().splitlines()
bodies = [json.loads(line)["body"] for line in lines]
correct = Counter(body["cell"]["arm"] for body in bodies if body["grade"] == "correct")
print(json.dumps({"correct": correct, "verdict": "REFUTED"}, sort_keys=True, separators=(",", ":")))
sys.exit(10)
"""
JUDGED = {"correct": {"crystal": 2, "full": 3}, "verdict": "REFUTED"}  # p3 fails under crystal


def tree(root: Path, judge: str = JUDGE) -> Path:
    """Source packages as the closure expects them; analysis can judge. judge: the code that does."""
    for name, text in {
        "policies/keep.py": "SLOTS = 4\n",
        "protocol/__init__.py": "",
        "splits/toy.json": "{}\n",
        "analysis/__init__.py": "",
        "analysis/judge.py": judge,
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def lock_content(name: str = "study", written: dict | None = None, **own) -> dict:
    """Every field that a lock has to have; in place of what is made up, `written` in protocol.toml and `own`
    in the lock.
    """
    content = {
        "title": "toy",
        "question": "Does crystal answer all that full answers?",
        "models": ["tiny"],
        "seeds": [0],
        "budgets": ["0.5"],
        "tasks": [{"name": "toy", "query": "inside", "max_new_tokens": 5}],
        "arms": {arm: {"policy": arm} for arm in ARMS},
        "generation": {"temperature": "0"},
        "decision": {},
        **(written or {}),
    }
    return {
        "kind": "kv-prereg lock",
        "version": 2,
        "name": name,
        "release": installed_versions.release(),
        "parent": None,
        **dict.fromkeys(("amends", "git", "signer")),
        "opened": [],
        "ledger": {"count": 0, "head": "0" * 64},
        "protocol": {"sha256": closure.sha256_hex(PROTOCOL), "content": content},
        "grid": [["tiny", "toy", "full" if arm == "full" else "0.5", arm, 0] for arm in ARMS],
        "policies": {arm: {} for arm in content["arms"]},
        "promises": {arm: promise("never" if arm == "full" else "prefill") for arm in content["arms"]},
        **{field: {} for field in ("asked", "full_use", "slot_bytes", "layers")},
        "items": {"toy": {"manifest": "0" * 64, "dev": ["p0", "p1"], "confirm": list(CONFIRM)}},
        "batch": {"lanes": {"tiny": 2}, "first_event": 1},
        "judging": 3,
        "chance": {},
        "sources": {},
        "bundle": "0" * 64,
        "data": {},
        "weights": {},
        "environment": copy.deepcopy(ENVIRONMENT),
        "rule": {"name": "toy", "source": "analysis/judge.py", "sha256": "0" * 64},
        "checks": copy.deepcopy(CHECKS),
        **own,
    }


def promise(fires: str, **own) -> dict:
    """What the policy of an arm promises: exactly its budget, at the end of the prefill."""
    return {
        "fires": fires,
        "interval": None,
        "grants_budget": True,
        "leaves_at_most": True,
        "leaves_exactly": True,
        "may_leave_less": False,
        "parked_caches": 0,
        "stores_as_computed": True,
        "is_press": False,
        **own,
    }


def locked(folder: Path, judge: str = JUDGE, **own) -> Lock:
    """A registration that was locked and nothing more. own: fields of its lock."""
    root = tree(folder.parent / "tree", judge)
    folder.mkdir()
    (folder / "protocol.toml").write_bytes(PROTOCOL)
    sources = closure.sources(root)
    content = lock_content(folder.name, sources=sources, bundle=bundle.write(folder, root, sources), **own)
    digest = lock.write(folder, content)
    ledger.append(folder, "register", {"lock": digest})
    return lock.read(folder)


def held(arm: str) -> list[int]:
    """Slots over 4 heads after the prefill of 8 tokens and after each of 3 fed: crystal keeps 4 of the 8."""
    start = 32 if arm == "full" else 16
    return [start, start + 4, start + 8, start + 12]


def body(registration: str, arm: str, problem: str, *, phase: str = "confirm", trajectory: str | None = None):
    wrong = (arm, problem) == ("crystal", "p3")
    slots = held(arm)
    return {
        "registration": registration,
        "phase": phase,
        "cell": {"model": "tiny", "task": "toy", "budget": "full" if arm == "full" else "0.5", "arm": arm, "seed": 0},
        "problem": problem,
        "state": "ok",
        "reason": "",
        "prompt": problem[1] * 64,
        "prompt_tokens": 8,
        "slots": None if arm == "full" else 4,
        "text": "né 7492\n",
        "tokens": 3,
        "stop": "eos",
        "answer": "1" if wrong else "7492",
        "grade": "wrong" if wrong else "correct",
        "grade_reason": "",
        "cache": {
            "mean": f"{sum(slots) / 16:.6f}",
            "peak": f"{slots[-1] / 4:.6f}",
            "prefill_end": f"{slots[0] / 4:.6f}",
            "mean_bytes": ROOM,
            "peak_bytes": ROOM,
            "state_bytes": 0,
            "events": [] if arm == "full" else [[0, 32, 16]],
            "granted": [] if arm == "full" else [4],
        },
        "trajectory": trajectory,
        "batch": {"problems": [problem], "lanes": 2, "joined": 0},
    }


def lanes() -> list[tuple[str, str]]:
    return [(arm, problem) for problem in CONFIRM for arm in ARMS]


MACHINE = {"executor": "local", "host": "here", "device": "cpu"}


def record(shard: ShardWriter, registration: str, arm: str, problem: str, attempt: int = 1) -> None:
    """The lane alone; the side file has the trajectories of both lanes of its problem, as a batch's has."""
    contents = [{"held": held(arm), "allocated": 4 * [ROOM], "heads": 4} for arm in ARMS]
    name = shard.keep_trajectories(contents)
    costs = {"attempt": attempt, "prefill_seconds": "0.1", "decode_seconds": f"0.{attempt}", **MACHINE}
    cited = records.make_citation(name, ARMS.index(arm))
    shard.append([(body(registration, arm, problem, trajectory=cited), costs)])


def confirm(folder: Path, *, stop_after: int | None = None, backwards: bool = False) -> None:
    """Claim or resume, record what is missing, seal; stopping early leaves what a kill would."""
    held = lock.read(folder)
    place = folder / records.FOLDERS["confirm"]
    with claim.exclusive_run(Registration(folder)):
        attempt = claim.take(Registration.with_lock(folder, held))
        HeldOutGuard(held, folder).ids("toy", "confirm")
        with ShardWriter(place) as shard:
            order = lanes()[::-1] if backwards else lanes()
            missing = [lane for lane in order if records.body_key(body("", *lane)) not in shard]
            for lane in missing[:stop_after]:
                record(shard, held.digest, *lane, attempt=attempt)
        if stop_after is None:
            seal.write(Registration.with_lock(folder, held))


def finished(folder: Path, judge: str = JUDGE, **own) -> Lock:
    """A registration that was locked, confirmed in two attempts, and judged. own: fields of its lock."""
    held = locked(folder, judge, **own)
    confirm(folder, stop_after=2)
    confirm(folder)
    verdict.write(Registration.with_lock(folder, held), JUDGED)
    return held
