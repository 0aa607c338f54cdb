"""The fields of a study whose outputs another harness makes: its records, and the list of the files that were read."""

from protocol.formats.documents import declare_document
from protocol.formats.fields import DIGEST, Choice, Field, Integer, ListOf, MapOf, OrNull, Plain, Table, Text
from protocol.formats.record_fields import SCORE_TEXT
from protocol.formats.vocabulary import AS_RUN

__all__ = ["BODY", "OUTPUTS"]

_NULL = Plain(lambda value: value is None, {"type": "null"}, "null, since nothing here saw it")
_UNSEEN = {name: Field(_NULL, "Not seen.") for name in ("prompt_tokens", "stop", "cache", "trajectory")}

BODY = Table(
    {
        "registration": Field(DIGEST, "Digest of the lock."),
        "phase": Field(Choice("confirm"), "There is no probe."),
        "cell": Field(
            Table(
                {
                    **{name: Field(Text(), name) for name in ("model", "task", "arm")},
                    "budget": Field(Choice(AS_RUN), "What the harness ran."),
                    "seed": Field(Integer(), "The registered seed."),
                }
            ),
            "What the lane is of.",
        ),
        "problem": Field(Text(), "Id of the problem, or its place among the drawn ones."),
        "source": Field(
            OrNull(Table({"file": Field(DIGEST, "Of the file."), "where": Field(Text(), "Where in it.")})),
            "The row that the lane was read from; null without one.",
        ),
        "state": Field(Choice("ok", "failed"), "Failed: the files have no score for it."),
        "reason": Field(Text(), "Why, unless ok; else empty."),
        "prompt": Field(DIGEST, "Digest of what the row says that was asked."),
        "grade": Field(OrNull(Choice("correct", "wrong", "scored")), "As the file has it; null unless ok."),
        "score": Field(SCORE_TEXT, "What the answer is worth.", if_absent='the grade is not "scored"'),
        **_UNSEEN,
    }
)
_FILE = Table(
    {
        "name": Field(Text(), "Its name below the folder of outputs."),
        "sha256": Field(DIGEST, "Of its bytes, which are in outside/files."),
        "bytes": Field(Integer(), "Its size."),
    }
)
OUTPUTS = declare_document(
    "outputs",
    {
        "lock": Field(DIGEST, "The lock."),
        "claim": Field(DIGEST, "The claim."),
        "files": Field(MapOf(ListOf(_FILE, 1)), "The files that were read, by arm."),
    },
)
