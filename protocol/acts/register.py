"""Freeze a protocol: check everything that can be checked beforehand, then write the lock, once.

Nothing is written before every check has passed. Held-out problems are not opened: ids come from the frozen
manifests, prompt lengths from the development split. Of held-out mathematical problems only the answers are
read, to verify against themselves, unless they are encrypted; the lock's `checks.golds` records that. A
user's file is read completely, to check that no problem is in it twice, and how long the held-out ones are.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from protocol import grading
from protocol.evidence import ledger
from protocol.evidence.external import git_history
from protocol.evidence.registration import PROTOCOL, Registration
from protocol.formats.progress_display import phase
from protocol.formats.refusals import BadInput
from protocol.lock import bundle, closure, frozen_problems, git_attributes, lock, signing
from protocol.lock.lock import Lock
from protocol.lock.previously_opened import find_previously_opened
from protocol.plan import checks, full_use
from protocol.plan.design import Design
from protocol.tasks.registry import PLUGINS
from protocol.workspace import imports
from protocol.workspace.drift import ROOT
from protocol.workspace.planned_study import PlannedStudy, read_protocol

__all__ = ["register"]


def register(
    folder: Path,
    home: Path,
    *,
    parent: dict[str, str] | None = None,
    amends: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None,
    predates_gates: bool = False,
    first_event: int | None = None,
    parent_full_use: dict[str, Any] | None = None,
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
    registration = Registration(folder)
    if registration.has(lock.NAME) and not registration.has_entries:
        return _complete_locking(registration, key)
    lock.refuse_second(folder)
    with phase(f"reading {PROTOCOL} and its policies"):
        data, protocol = read_protocol(folder)
        if not predates_gates:
            checks.require_gate(protocol, folder / PROTOCOL)
            checks.require_memory(protocol, folder / PROTOCOL)
        planned = PlannedStudy(protocol, home, folder=folder)
    with phase("checking the splits of the tasks"):
        frozen_items = frozen_problems.freeze_items(planned)
        _refuse_unlocked_plugins(protocol)
        planned.files()  # refuses missing files before anything is hashed
    with phase("loading torch and transformers"):
        planned.refuse_device()
        signer = signing.usable_public_key(key) if key else None
        # Imports transformers and analysis, which no check above needs.
        from protocol.preflight import feasibility, full_cache_use, lock_content, slot_sizes

    planned = slot_sizes.with_widths(planned)
    lengths, rule_results = feasibility.check_feasibility(planned, frozen_items, is_replication=parent is not None)
    with phase("hashing the weights"):
        frozen_weights = planned.weights()
        feasibility.refuse_other_weights(planned, frozen_weights)
        feasibility.refuse_duplicate_models(frozen_weights)
    with phase("grading the gold answers"):
        frozen_problems.refuse_wrong_golds(frozen_items, planned.tasks)
    full_use_field = {}
    if share_budgets := full_cache_use.share_budgets(protocol):
        problems = {name: item["dev"] for name, item in frozen_items.items()}
        full_use_field = {full_use.FIELD: parent_full_use or full_cache_use.measure_full_cache(planned, problems)}
        planned = planned._replace(full_use=full_use.read_means(full_use_field[full_use.FIELD]))
        if parent is None:
            feasibility.refuse_small_budgets(planned, lengths, share_budgets)
            feasibility.refuse_duplicate_budgets(planned, lengths, protocol.budgets)
    with phase("hashing sources and packages"):
        environment = planned.environment()
        sources = closure.sources(ROOT)
        derived_content = lock_content.derive_content(planned, data, frozen_items, sources, first_event)
    with phase("looking through the repository"):
        previously_opened = find_previously_opened(folder, frozen_items, protocol.content(), parent)
        git_state = git_history.describe_commit(ROOT, sources)
    with phase("looking for arms that keep the same slots"):
        checks_field = lock_content.derive_checks(planned, frozen_items, rule_results)
    content = {
        "kind": "kv-prereg lock",
        "version": 1,
        "name": registration.name,
        "parent": parent,
        "amends": None,
        "opened": previously_opened,
        "ledger": ledger.head_of([]),
        "git": git_state,
        "signer": signer,
        "sources": sources,
        "weights": frozen_weights,
        "environment": environment,
        **derived_content,
        **full_use_field,
        "checks": checks_field,
    }
    lanes = {model: feasibility.choose_lane_count(planned, model, lengths) for model in protocol.models}
    content["batch"] = derived_content["batch"] | {"lanes": lanes}
    if amends is not None:
        content["amends"] = amends(content)
    with phase("writing the lock"):
        content["bundle"] = bundle.write(folder, ROOT, sources)
        git_attributes.write(folder)
        lock.write(folder, content)
    return _complete_locking(registration, key)


def _refuse_unlocked_plugins(protocol: Design) -> None:
    """Raise BadInput for a plugin policy, task or grader whose code the lock would not contain."""
    names_by_group = {
        "kv_prereg.policies": {arm.policy for arm in protocol.arms if arm.policy is not None},
        PLUGINS.group: {task.name for task in protocol.tasks if task.file is None and task.lm_eval is None},
        grading.PLUGINS.group: {task.grader for task in protocol.tasks if task.grader is not None},
    }
    for group, names in names_by_group.items():
        imports.refuse_elsewhere(group, names)


def _complete_locking(study: Registration, key: Path | None) -> Lock:
    """Return the written lock, after adding its signature and its line in the ledger."""
    is_signed = study.has(signing.NAME)
    if key is not None and not is_signed:
        signing.sign(study.folder, key)
    elif key is None and study.lock.content.get("signer") and not is_signed:
        raise BadInput(f"{study.folder}: was locked to be signed and is not; register again with --sign KEY")
    ledger.append(study.folder, "register", {"lock": study.lock.digest})
    return study.lock
