"""Begin a registration: a commented protocol and, if it uses a file of questions, new questions."""

import json
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from protocol.evidence.bytes import files
from protocol.evidence.refusals import BadInput, unknown
from protocol.evidence.run.registration import PROTOCOL, Registration
from protocol.tasks.chain import Chain

__all__ = ["TEMPLATES", "Begun", "begin", "free", "template", "told"]

TEMPLATES = ("quick", "reasoning", "retrieval", "lossless")
QUESTIONS = "questions.jsonl"

# The chains from which a template's questions are drawn: enough that at least 200 are held out.
# Seven steps are answered in 88 tokens; if all answers are equally long, arms have equal memory by problem.
DRAWN: Mapping[str, Chain] = MappingProxyType(
    {
        "quick": Chain((7,), repetitions=360, calibration=0),
        "reasoning": Chain((8, 10, 12, 14, 16), repetitions=76, calibration=0),
        "lossless": Chain((12, 14, 16), repetitions=125, calibration=0),
    }
)


class Begun(NamedTuple):
    """paths: the written files. question: the question of the protocol. question_count: lines of the file of
    questions.
    """

    paths: list[Path]
    question: str
    questions: int


def template(name: str) -> str:
    """Return the protocol of a template. Raises BadInput for another name."""
    if name not in TEMPLATES:
        raise BadInput(f"--like: {unknown('template', name, TEMPLATES)}")
    return (resources.files("protocol.texts") / "templates" / f"{name}.toml").read_text("utf-8")


def told(name: str) -> str:
    """Return the description of a template, from its first line."""
    return template(name).partition("\n")[0].removeprefix("# ")


def free(shelf: Path) -> Path:
    """Return the first NNN-mine whose number is above every number in the folder."""
    taken = [
        int(head) for path in shelf.glob("[0-9]*-*") if (head := path.name.partition("-")[0]).isdecimal()
    ]
    return shelf / f"{max(taken, default=0) + 1:03d}-mine"


def begin(folder: Path, like: str, seed: int) -> Begun:
    """Write the template `like` into `folder`, and beside it its questions, drawn from `seed`.

    Raises BadInput, and writes nothing, if there is already a registration or a file of that name, and for a
    folder of registrations.
    """
    text = template(like)
    rows = questions(DRAWN[like], seed) if like in DRAWN else []
    written = {PROTOCOL: text} | (
        {QUESTIONS: "".join(f"{json.dumps(row)}\n" for row in rows)} if rows else {}
    )
    if folder.suffix == ".toml" or (folder.exists() and not folder.is_dir()):
        raise BadInput(f"{folder} is no folder; name the folder that {PROTOCOL} is to lie in")
    if holds_studies(folder):
        raise BadInput(f"{folder} holds studies; name a folder in it, such as {free(folder)}")
    study = Registration(folder)
    if found := [*study.traces(), *filter(study.has, written)]:
        raise BadInput(f"{folder / found[0]} is there already and stays; name another folder")
    for name in reversed(written):  # the protocol last: it makes the folder a study
        files.create(folder / name, written[name].encode())
    return Begun([folder / name for name in written], tomllib.loads(text)["question"], len(rows))


def holds_studies(folder: Path) -> bool:
    """Whether studies are one level below, which an index would no longer show."""
    return any(Registration(path).known() for path in folder.glob("*/"))


def questions(chain: Chain, seed: int) -> list[dict[str, str]]:
    """Return the rows of a file of questions, in the form of protocol.tasks.file_rows: chains of a new seed,
    so that no study has opened one.
    """
    drawn = chain.redrawn(seed)
    problems = [drawn.build(name, len) for name in drawn.ids()]
    return [
        {
            "id": one.id,
            "context": one.context,
            "question": one.question,
            "answer": drawn.gold(one.id),
            "level": one.id.split("/")[1].lstrip("0"),
        }
        for one in problems
    ]
