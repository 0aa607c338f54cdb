"""Freeze a protocol: hash it with code, splits, weights and environment, once.

    kv-prereg register registrations/001-mine
    kv-prereg register registrations/001-mine --sign ~/.ssh/id_ed25519

Reads protocol.toml in the folder, checks every name and budget, runs the decision rule on simulated studies
that must give each verdict, simulates its type-I error at the planned size, judges, draws and exports a
simulated study of the whole grid, then writes lock.json, sources.zip and the first ledger entry; with --sign
the signature of the lock too. A refusal writes nothing. The registered [witness] is asked to stamp the lock; where
it cannot be reached, a line says what to do before confirm.

Exit status: 0 locked; 2 bad input; 3 corrupt weights; 4 the folder is locked already.
"""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from analysis.judgement import arm_text, full_cache_use, previously_opened, same_retained_slots
from protocol import command
from protocol.evidence import citations, late_randomness, ledger
from protocol.evidence.external import git_history
from protocol.evidence.registration import PROTOCOL, Registration
from protocol.formats import files
from protocol.formats.citations import CITES
from protocol.formats.progress_display import phase
from protocol.formats.refusals import BadInput
from protocol.formats.registry import load_attribute
from protocol.formats.runners import find_runner
from protocol.lock import bundle, closure, git_attributes, installed_files, installed_versions, lock, signing, version_1
from protocol.lock.lock import Lock
from protocol.messages import slot_sizes
from protocol.plan import full_use, toml_reader
from protocol.preflight import neighbours, written_study
from protocol.preflight.derive import derive_lock
from protocol.preflight.previously_opened import find_previously_opened
from protocol.witnesses import registered
from protocol.workspace import imports
from protocol.workspace.drift import ROOT
from protocol.workspace.planned_study import PlannedStudy

# Words of the output that the help explains.
TERMS = (
    "lock",
    "opened before",
    "cell",
    "contrast",
    "family",
    "type-I error",
    "detectable difference",
    "CONFIRMED",
    "REFUTED",
)


class Parent(NamedTuple):
    """The study that a new one cites. reference: the field `parent` of the new lock. reproduced: the content of its
    lock, whose measures a reproduction takes over; None for a replication on fresh problems.
    """

    reference: dict[str, Any]
    reproduced: Mapping[str, Any] | None


class Options(command.Options):
    sign: Path | None


def main(argv: list[str] | None = None, *, is_typed: bool = False) -> int:
    """is_typed: run from a shell; then refuse import paths that `confirm` would refuse."""
    parser = command.make_parser("register", __doc__, TERMS)
    command.add_folder(parser)
    parser.add_argument("--sign", type=Path, metavar="KEY", help="private ssh key to sign the lock with")
    return command.run(parser, argv, Options(), partial(act, is_typed=is_typed))


def act(args: Options, is_typed: bool) -> int:
    if is_typed:
        imports.refuse_uncovered()
    with toml_reader.locate_refusals(args.folder / PROTOCOL):
        locked = register(args.folder, files.cache_home(), key=args.sign)
    # Imported late: scipy is slow, and --help and the refusals above do not need it.
    from analysis.simulation import confirm_power, expected_looks
    from analysis.stats.methods import describe_sizes

    results = locked.content["checks"]
    samples = describe_sizes(locked.content["items"])
    power = confirm_power.describe_power(locked.content["protocol"]["content"], results, locked.content["items"])
    power += expected_looks.describe_looks(locked.content)
    with phase("asking a witness to stamp the lock"):
        witness_line = registered.stamp_lock(Registration(args.folder))
    lines = [
        f"locked {args.folder} as {locked.digest}",
        *([witness_line] if witness_line else []),
        f"{len(locked.content['grid'])} cells; {results['tests']} tests at {results['corrected_alpha']} each",
        *(f"{samples[size]}: {format_type_one(check)}" for size, check in results["problems"].items()),
        *format_scored(results),
        *power,
        *format_errors(results),
        *arm_text.extra_prompt_sentences(locked.content),
        *arm_text.differing_prompt_sentences(locked.content),
        *full_cache_use.describe_full_use(locked.content.get(full_cache_use.FIELD, {})),
        *slot_sizes.describe_slots(locked.content),
        *describe_left_out(locked.content),
        *neighbours.describe_charge(locked.content["protocol"]["content"]),
        *neighbours.describe_equal_slots(locked.content),
        *format_opened(locked.content),
        *previously_opened.describe_shared_clusters(locked.content),
        *same_retained_slots.describe_pairs(results["same_kept"]),
        *installed_files.format_altered(locked.content["environment"]["altered"]),
        f"next: {format_next(Registration(args.folder))}",
    ]
    values = {
        "lock": locked.digest,
        "witness": witness_line,
        "checks": results,
        "opened": locked.content["opened"],
        "power": power,
    }
    command.print_result(args.json, "\n".join(lines), values)
    return 0


def format_next(study: Registration) -> str:
    """Return the commands that follow the lock. Nobody probes a study that another harness runs."""
    confirm = f"kv-prereg confirm {study.folder}"
    if find_runner(study.protocol) is not None:
        return confirm
    return f"kv-prereg probe {study.folder}, {'then' if study.has_sweep else 'or'} {confirm}"


def describe_left_out(locked: Mapping[str, Any]) -> list[str]:
    """Say which settings of the models' generation_config.json no arm applies."""
    if not locked["weights"]:  # another harness runs it
        return []
    from protocol.models import checkpoint  # transformers, which was loaded to register

    home = files.cache_home()
    return [line for model in locked["weights"] for line in checkpoint.describe_left_out(model, home)]


def format_opened(locked: Mapping[str, Any]) -> list[str]:
    """Say which problems had been opened, that the verdict will then be RE-USED, and how fresh problems are had."""
    if not previously_opened.describe_reuse(locked):
        return previously_opened.describe_opened(locked)
    has_files = any(locked["data"])
    fix = "a file of other questions" if has_files else f'[{late_randomness.FIELD}] with source = "local"'
    return [
        *previously_opened.describe_opened(locked),
        f"the verdict can only be RE-USED, INCONCLUSIVE or SCREENED; fresh problems need {fix}, in a separate study",
    ]


def format_errors(checks: dict[str, Any]) -> list[str]:
    """Format how often the whole decision is wrong when no arms differ."""
    shares = checks["decision_errors"]
    confirmed, refuted = (float(shares[outcome]["share"]) for outcome in ("confirmed", "refuted"))
    return [
        f"error rates by simulation, if no arms differ: CONFIRMED {confirmed:.1%}, REFUTED {refuted:.1%} of "
        f"studies, in the worst case ({shares['setting']})"
    ]


def format_scored(checks: dict[str, Any]) -> list[str]:
    """Note the tasks with scores, which the simulated error rates and power do not cover."""
    tasks = checks.get("scored", [])
    return [
        f"error rates and power are for right and wrong answers, but answers of {', '.join(tasks)} have scores"
    ] * bool(tasks)


def format_type_one(check: dict[str, Any]) -> str:
    return f"type-I error {check['type_one_over_nominal']} x nominal"


def register(
    folder: Path,
    home: Path,
    *,
    parent: Parent | None = None,
    amends: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None,
    key: Path | None = None,
) -> Lock:
    """Lock the protocol in `folder`. Raises BadInput, Drifted or AlreadyClaimed; then nothing was written.

    Held-out problems are not opened: ids come from the frozen manifests, prompt lengths from the development
    split. Of held-out mathematical problems only the answers are read, to verify against themselves, unless
    they are encrypted; the lock's `checks.golds` records that. A user's file is read completely, to check
    that no problem is in it twice, and how long the held-out ones are.

    parent: the study that this one reproduces or replicates; amends: describes the lock that this one amends, as
    in `evidence.amendment`; key: a private key of ssh, to sign the lock with. A registration that a crash
    interrupted before its line in the ledger is completed.
    """
    registration = Registration(folder)
    if registration.has(lock.NAME) and not registration.has_entries:
        return _complete_locking(registration, key)
    lock.refuse_second(folder)
    reference, reproduced = (None, None) if parent is None else parent
    data, planned, frozen_items = written_study.read_written_study(
        folder,
        home,
        opens_held_out=True,
        is_replication=reproduced is not None,
        is_older=lambda data: version_1.is_replicated(reference, closure.sha256_hex(data)),
    )
    protocol = planned.protocol
    if protocol.decodes:
        planned.files()  # refuses missing files before anything is hashed
    cited = {} if reference else citations.open_cited(folder, protocol.content())
    signer = signing.usable_public_key(key) if key else None
    moment = {
        "kind": "kv-prereg lock",
        "version": lock.VERSION,
        "name": registration.name,
        "release": installed_versions.release(),
        "parent": reference,
        "amends": None,
        "signer": signer,
        "bundle": "",
    }
    if (runner := find_runner(protocol.content())) is None:
        content = _derive_decoded(planned, data, frozen_items, moment, reproduced)
    else:
        with phase("testing the rule and its error rates on simulated studies"):
            observed = {
                **moment,
                **_observe_tree(planned, frozen_items, reproduced),
                "environment": installed_files.environment(),
            }
            content = load_attribute(runner.derive)(planned, data, frozen_items, observed)
    if cites := reproduced[CITES] if reproduced and CITES in reproduced else citations.cite(cited, content):
        content[CITES] = cites
    if parent is None:
        # Imported late: it loads what judges and draws.
        from protocol.preflight import simulated_study

        with phase("judging a simulated study of this grid"):
            simulated_study.refuse_unjudgeable(content)
    if amends is not None:
        content["amends"] = amends(content)
    with phase("writing the lock"):
        content["bundle"] = bundle.write(folder, ROOT, content["sources"])
        git_attributes.write(folder)
        lock.write(folder, content)
    return _complete_locking(registration, key)


def _observe_tree(
    planned: PlannedStudy, items: Mapping[str, Any], reproduced: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return what a lock says of sources and repository. reproduced: the content of the lock that is reproduced."""
    with phase("hashing sources and packages"):
        sources = closure.sources(ROOT)
    with phase("searching the repository for opened problems"):
        assert planned.folder is not None
        opened = reproduced["opened"] if reproduced else None
        if opened is None:
            opened = find_previously_opened(planned.folder, items, planned.protocol.content())
        return {"sources": sources, "opened": opened, "git": git_history.describe_commit(ROOT, sources)}


def _derive_decoded(
    planned: PlannedStudy,
    data: bytes,
    frozen_items: Mapping[str, Any],
    moment: Mapping[str, Any],
    reproduced: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the lock of a study that this project decodes. data: protocol.toml; moment: what is known of the lock
    without its models and sources. Raises as `register` does.
    """
    protocol = planned.protocol
    with phase("loading torch and transformers"):
        planned.refuse_device()
        # Imports transformers and analysis, which no check above needs.
        from protocol.preflight import feasibility, full_cache_use, lock_inputs, slot_sizes

    planned = slot_sizes.with_widths(planned)
    lengths, rule_results = feasibility.check_feasibility(planned, frozen_items, is_replication=reproduced is not None)
    with phase("hashing the weights"):
        frozen_weights = planned.weights()
        feasibility.refuse_other_weights(planned, frozen_weights)
        feasibility.refuse_duplicate_models(frozen_weights)
    full_use_field: dict[str, Any] = {}
    if share_budgets := full_cache_use.share_budgets(protocol):
        problems = {name: item["dev"] for name, item in frozen_items.items()}
        parent_full_use = None if reproduced is None else reproduced[full_use.FIELD]
        full_use_field = parent_full_use or full_cache_use.measure_full_cache(planned, problems)
        planned = planned._replace(full_use=full_use.read_means(full_use_field))
        if reproduced is None:
            feasibility.refuse_small_budgets(planned, lengths, share_budgets)
            feasibility.refuse_duplicate_budgets(planned, lengths, protocol.all_budgets)
    tree = _observe_tree(planned, frozen_items, reproduced)
    with phase("checking whether arms keep the same slots"):
        checks_field = lock_inputs.read_checks(planned, frozen_items, rule_results)
    models = () if protocol.generation.is_batch_invariant else protocol.models
    lanes = {model: feasibility.choose_lane_count(planned, model, lengths) for model in models}
    inputs = {
        **moment,
        **tree,
        "weights": frozen_weights,
        "environment": planned.environment(),
        "batch": {"lanes": lanes} | ({} if reproduced is None else {"first_event": reproduced["batch"]["first_event"]}),
        "full_use": full_use_field,
        "checks": checks_field,
        **lock_inputs.read_inputs(planned, data, frozen_items),
    }
    return derive_lock(protocol, protocol.promises(), inputs)


def _complete_locking(study: Registration, key: Path | None) -> Lock:
    """Return the written lock, after adding its signature and its line in the ledger."""
    is_signed = study.has(signing.NAME)
    if key is not None and not is_signed:
        signing.sign(study.folder, key)
    elif key is None and study.lock.content.get("signer") and not is_signed:
        raise BadInput(f"{study.folder}: was to be signed, but has no signature; register again with --sign KEY")
    ledger.append(study.folder, "register", {"lock": study.lock.digest})
    return study.lock


if __name__ == "__main__":
    sys.exit(main(is_typed=True))
