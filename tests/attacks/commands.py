"""Every command that reads a folder of somebody else, run in this process on one."""

import contextlib
import importlib
import io
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import studies

from protocol.lock import installed_files, installed_versions


class Command(NamedTuple):
    """statuses: those that its help and docs/commands.md say. {} in an argument is the folder."""

    module: str
    arguments: tuple[str, ...]
    statuses: tuple[int, ...]

    def __str__(self) -> str:
        return " ".join([self.module, *self.arguments]).replace(" {}", "")


# That a claim is taken, or that a model is run, is refused of a finished study.
READING = [
    Command("protocol.audit", ("{}",), (0, 2, 3, 6, 7)),
    Command("protocol.audit", ("{}", "--details"), (0, 2, 3, 6, 7)),
    Command("protocol.audit", ("{}", "--json"), (0, 2, 3, 6, 7)),
    Command("protocol.status", ("{}",), (0, 2, 3, 7)),
    Command("protocol.status", ("{}/..", "--json"), (0, 2, 3, 7)),
    Command("protocol.export", ("{}", "--format", "osf"), (0, 2, 3)),
    Command("protocol.export", ("{}", "--format", "aspredicted"), (0, 2, 3)),
    Command("protocol.export", ("{}", "--format", "in-toto"), (0, 2, 3)),
    Command("protocol.regrade", ("{}",), (0, 1, 2, 3)),
    Command("protocol.regrade", ("{}", "--probe", "--json"), (0, 1, 2, 3)),
    Command("protocol.anchor", ("{}",), (0, 2, 3)),
    Command("protocol.withdraw", ("{}", "--reason", "a typo"), (0, 2, 3, 4)),
    Command("analysis.judge", ("{}",), (0, 2)),
    Command("analysis.selection", ("{}",), (0, 2)),
    Command("analysis.ablations", ("{}",), (0, 2)),
    Command("analysis.diagnostics", ("{}",), (0, 2)),
    Command("analysis.diagnostics", ("{}", "--json"), (0, 2)),
    Command("figures.table", ("{}",), (0, 2)),
    Command("figures.forest", ("{}",), (0, 2)),
    Command("figures.pool", ("{}",), (2,)),
    Command("figures.report", ("{}/..",), (0, 2)),
    Command("figures.settings_map", ("{}",), (0, 2)),
]
REPLICATE = Command("protocol.replicate", ("{}",), (2, 3, 4))  # of what does not hold; else it runs a model
DRAWING = [  # takes a second or two each
    Command("figures.study", ("{}",), (0, 2)),
    Command("figures.report", ("{}",), (0, 2)),
]


class Said(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def both(self) -> str:
        return self.out + self.err


def run(command: Command, folder: Path) -> Said:
    given = [argument.replace("{}", str(folder)) for argument in command.arguments]
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n") for _ in range(2))
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(installed_files, "environment", studies.surroundings),
        mock.patch.object(installed_versions, "versions", studies.installed),
    ):
        try:
            status = importlib.import_module(command.module).main(given)
        except SystemExit as stopped:
            status = stopped.code
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode("utf-8", "surrogatepass"))
    return Said(status, *texts)
