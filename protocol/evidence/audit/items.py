"""The items of an audit, in order, each with the question of a reader that it answers."""

from typing import Literal, NamedTuple

from protocol.formats.instruments import INSTRUMENTS

Question = Literal["follows", "consistent", "outside", "again"]
# Text for reviewers; the report lists after each the items that passed.
QUESTIONS: dict[Question, str] = {
    "follows": "it follows from what was registered",
    "consistent": "it does not contradict itself",
    "outside": "what lies outside the folder agrees",
    "again": "what was repeated gave the same result",
}


class Item(NamedTuple):
    """An item of an audit. is_optional: an undetermined result is no gap in the evidence."""

    name: str
    question: Question
    is_optional: bool = False


ITEMS = (
    Item("files", "consistent"),
    Item("lock", "follows"),
    Item("protocol", "follows"),
    Item("sources", "follows"),
    Item("registered", "follows"),
    Item("policies", "follows", is_optional=True),
    Item("commit", "outside", is_optional=True),
    Item("signature", "outside", is_optional=True),
    Item("amendment", "outside", is_optional=True),
    Item("ledger", "consistent"),
    Item("history", "outside", is_optional=True),
    Item("probe", "consistent"),
    *(Item(instrument.name, "follows") for instrument in INSTRUMENTS),
    Item("selection", "follows"),
    Item("claim", "consistent"),
    Item("randomness", "outside", is_optional=True),
    Item("records", "consistent"),
    Item("outputs", "follows"),
    Item("trajectories", "consistent"),
    Item("cited", "follows"),
    Item("grid", "follows"),
    Item("sense", "consistent"),
    Item("grades", "consistent"),
    Item("seal", "consistent"),
    Item("verdict", "consistent"),
    Item("judgement", "follows"),
    Item("ending", "outside", is_optional=True),
    Item("anchors", "outside", is_optional=True),
    Item("simulations", "again"),
    Item("drawings", "again"),
    Item("replay", "again"),
    Item("locked code", "again"),
)
EXTERNAL_ITEMS = tuple(item.name for item in ITEMS if item.is_optional)
