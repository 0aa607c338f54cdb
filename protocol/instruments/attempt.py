"""The command of an instrument that measures a locked study before its claim, and its attempts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from protocol import command
from protocol.evidence import claim
from protocol.evidence.registration import Registration
from protocol.formats import files
from protocol.formats.instruments import Instrument
from protocol.formats.progress_display import phase
from protocol.formats.registry import load_attribute
from protocol.recompute import study_files
from protocol.workspace import locked_tree

if TYPE_CHECKING:
    from protocol.workspace.study import Study


class MeasuringCommand(NamedTuple):
    """measure: the path "module:function" of what measures a `Study` and loads torch. is_done:
    whether the study has its result, which is then printed. print_result: takes whether as JSON.
    """

    instrument: Instrument
    measure: str
    is_done: Callable[[Registration], bool]
    print_result: Callable[[Registration, bool], int]


def run_command(measuring: MeasuringCommand, doc: str | None, argv: list[str] | None, *, enter: bool) -> int:
    """Run the command and return its exit status. enter: whether to run from the locked sources."""
    parser = command.make_parser(measuring.instrument.name, doc)
    command.add_folder(parser)
    args = parser.parse_args(argv)
    return command.execute(
        args.json, lambda: _act(measuring, Registration(args.folder), args.json, enter), resumes=True
    )


def _act(measuring: MeasuringCommand, study: Registration, as_json: bool, enter: bool) -> int:
    with phase(locked_tree.phase_label("checking the files of the study")):
        if measuring.is_done(study):
            return measuring.print_result(study, as_json)
        study_files.check_instrument(study, measuring.instrument)
        if enter:
            locked_tree.enter(study, measuring.instrument.commands[measuring.instrument.name].module)
    # Imported late: torch is slow, and --help and the refusals above do not need it.
    with phase(locked_tree.phase_label("loading torch", "loading torch, compiling it afresh")):
        from protocol.workspace.study import open_study

        measure = load_attribute(measuring.measure)
    measure(open_study(study, files.cache_home()))
    return measuring.print_result(study.reopen(), as_json)


@contextmanager
def exclusive_attempt(study: "Study", instrument: Instrument) -> Iterator[None]:
    """Enter an attempt of this process alone. Raises as `study_files.check_instrument`, `refuse_drift` and
    `verify_before_claim.refuse_edited_lock` do.
    """
    from protocol.preflight import verify_before_claim
    from protocol.workspace.study import refuse_drift

    study_files.check_instrument(study.registration, instrument)
    with phase("hashing sources, packages and weights"):
        refuse_drift(study, with_weights=True)
    with phase("rederiving the lock"):
        verify_before_claim.refuse_edited_lock(study, simulated=False)
    with claim.exclusive_run(study.registration):
        study_files.refuse_claimed(study.registration.reopen(), instrument)
        yield
