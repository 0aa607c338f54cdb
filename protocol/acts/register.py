"""Freeze a protocol: check everything that can be checked beforehand, then write the lock, once.

Nothing is written before every check has passed. Held-out problems are not opened: ids come from the frozen
manifests, prompt lengths from the development split. Of held-out mathematical problems only the answers are
read, to verify against themselves, unless they are encrypted; the lock's `checks.golds` records that. A
user's file is read completely, to check that no problem is in it twice, and how long the held-out ones are.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from analysis.output.phases import phase
from protocol import grading
from protocol.acts.locking import frozen
from protocol.acts.locking.opened_before import opened_before
from protocol.evidence.lock import attributes, bundle, closure, lock, signing
from protocol.evidence.lock.lock import Lock
from protocol.evidence.outside import history
from protocol.evidence.refusals import BadInput
from protocol.evidence.run import ledger
from protocol.evidence.run.registration import PROTOCOL, Registration
from protocol.locked import imports
from protocol.locked.drift import ROOT
from protocol.locked.planned import Planned, read_protocol
from protocol.plan import checks, full_use
from protocol.plan.design import Design
from protocol.tasks.registry import GROUP

__all__ = ["register"]


def register(
    folder: Path,
    home: Path,
    *,
    parent: dict[str, str] | None = None,
    amends: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None,
    gateless: bool = False,
    first_event: int | None = None,
    used: dict[str, Any] | None = None,
    key: Path | None = None,
) -> Lock:
    """Lock the protocol in `folder`. Raises BadInput, Drifted or AlreadyClaimed; then nothing was written.

    parent: the study that this one replicates; amends: describes the lock that this one amends, as in
    `evidence.amendment`; predates_gates: the lock that this one replicates or amends is older than gates, so
    that this one needs no gate and need not say what counts as memory; first_event: the first step at which
    the replicated study may evict, whose lock may predate the setting; parent_full_use: the use of the full
    cache in that study, whose budgets in slots this one takes over; key: a private key of ssh, to sign the
    lock with. A registration that a crash interrupted before its line in the ledger is completed.
    """
    opened = Registration(folder)
    if opened.has(lock.NAME) and not opened.entered:
        return _completed(opened, key)
    lock.refuse_second(folder)
    with phase(f"reading {PROTOCOL} and its policies"):
        data, protocol = read_protocol(folder)
        if not gateless:
            checks.require_gate(protocol, folder / PROTOCOL)
            checks.require_memory(protocol, folder / PROTOCOL)
        planned = Planned(protocol, home, folder=folder)
    with phase("checking the splits of the tasks"):
        frozen_items = frozen.items(planned)
        _refuse_uncovered(protocol)
        planned.files()  # refuses missing files before anything is hashed
    with phase("loading torch and transformers"):
        planned.refuse_device()
        signer = signing.public(key) if key else None
        # Imports transformers and analysis, which no check above needs.
        from protocol.acts.locking import derived, fitting, measured_use, sized

    planned = sized.sized(planned)
    lengths, seen = fitting.checked(planned, frozen_items, again=parent is not None)
    with phase("hashing the weights"):
        frozen_weights = planned.weights()
        fitting.refuse_other_weights(planned, frozen_weights)
        fitting.refuse_one_model_twice(frozen_weights)
    with phase("grading the gold answers"):
        frozen.refuse_wrong_golds(frozen_items, planned.tasks)
    held = {}
    if shares := measured_use.shares(protocol):
        problems = {name: item["dev"] for name, item in frozen_items.items()}
        held = {full_use.FIELD: used or measured_use.measured(planned, problems)}
        planned = planned._replace(full_use=full_use.means(held[full_use.FIELD]))
        if parent is None:
            fitting.refuse_small_budgets(planned, lengths, shares)
            fitting.refuse_one_budget_twice(planned, lengths, protocol.budgets)
    with phase("hashing sources and packages"):
        surroundings = planned.environment()
        sources = closure.sources(ROOT)
        follows = derived.follows(planned, data, frozen_items, sources, first_event)
    with phase("looking through the repository"):
        opened_earlier = opened_before(folder, frozen_items, protocol.content(), parent)
        committed = history.committed(ROOT, sources)
    with phase("looking for arms that keep the same slots"):
        made = derived.checks(planned, frozen_items, seen)
    content = {
        "kind": "kv-prereg lock",
        "version": 1,
        "name": opened.name,
        "parent": parent,
        "amends": None,
        "opened": opened_earlier,
        "ledger": ledger.at([]),
        "git": committed,
        "signer": signer,
        "sources": sources,
        "weights": frozen_weights,
        "environment": surroundings,
        **follows,
        **held,
        "checks": made,
    }
    lanes = {model: fitting.lanes(planned, model, lengths) for model in protocol.models}
    content["batch"] = follows["batch"] | {"lanes": lanes}
    if amends is not None:
        content["amends"] = amends(content)
    with phase("writing the lock"):
        content["bundle"] = bundle.write(folder, ROOT, sources)
        attributes.write(folder)
        lock.write(folder, content)
    return _completed(opened, key)


def _refuse_uncovered(protocol: Design) -> None:
    """Raise BadInput for a plugin policy, task or grader whose code the lock would not contain."""
    named = {
        "kv_prereg.policies": {arm.policy for arm in protocol.arms if arm.policy is not None},
        GROUP: {task.name for task in protocol.tasks if task.file is None and task.lm_eval is None},
        grading.GROUP: {task.grader for task in protocol.tasks if task.grader is not None},
    }
    for group, names in named.items():
        imports.refuse_elsewhere(group, names)


def _completed(study: Registration, key: Path | None) -> Lock:
    """Return the written lock, after adding its signature and its line in the ledger."""
    signed = study.has(signing.NAME)
    if key is not None and not signed:
        signing.sign(study.folder, key)
    elif key is None and study.lock.content.get("signer") and not signed:
        raise BadInput(f"{study.folder}: was locked to be signed and is not; register again with --sign KEY")
    ledger.append(study.folder, "register", {"lock": study.lock.digest})
    return study.lock
