"""What lies in the folder beside what was sealed, or in its place."""

import gzip
import zipfile

from rewrite_cases import named
from rewriting import Rewrite


def put(name: str, data: bytes):
    def change(folder):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)

    return change


def linked(name: str):
    """The same bytes, behind a link: they can be exchanged at any moment."""

    def change(folder):
        elsewhere = folder.with_name("elsewhere")
        (folder / name).rename(elsewhere)
        (folder / name).symlink_to(elsewhere)

    return change


@named("A6", "files", "ledger.jsonl: is a link")
def the_ledger_is_a_link(rewrite: Rewrite):
    """The ledger is in the folder."""
    rewrite.last.append(linked("ledger.jsonl"))


@named("A6", "files", "records/trajectories: is a link")
def the_trajectories_are_a_link(rewrite):
    """The trajectories are in the folder."""
    rewrite.last.append(linked("records/trajectories"))


@named("A9", "trajectories", "json.gz")
def a_side_file_is_a_bomb(rewrite):
    """Nothing: whoever unpacks it has no memory left."""

    def change(folder):
        path = next((folder / "records" / "trajectories").iterdir())
        path.write_bytes(gzip.compress(b"[" + b" " * 400_000_000 + b"]", 9, mtime=0))

    rewrite.last.append(change)


@named("A6", "trajectories", "header has optional fields")
def a_side_file_has_a_comment(rewrite):
    """Somebody approved of it, before it was sealed."""

    def change(folder):
        for path in (folder / "records" / "trajectories").iterdir():
            packed = path.read_bytes()
            path.write_bytes(packed[:3] + b"\x10" + packed[4:10] + b"approved\0" + packed[10:])

    rewrite.last.append(change)


@named("A9", "sources", "member|bytes|inflate")
def the_bundle_is_a_bomb(rewrite):
    """Nothing: whoever unpacks it has no disk left."""

    def change(folder):
        with zipfile.ZipFile(folder / "sources.zip", "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("analysis/more.py", b" " * 400_000_000)

    rewrite.last.append(change)


@named("A13", "files", "records/notes.jsonl: is not a file that kv-prereg writes as evidence")
def more_lies_among_the_records(rewrite):
    """The file belongs to the records."""
    rewrite.last.append(put("records/notes.jsonl", b"{}\n"))


@named("A13", "files", "anchors/lock.proof: is not a file that kv-prereg writes as evidence")
def a_proof_of_no_witness_lies_among_the_anchors(rewrite):
    """An outside witness vouches for the lock."""
    rewrite.last.append(put("anchors/lock.proof", b"proof"))


@named("A13", "anchors", "lock")
def an_anchor_of_another_study_is_put_here(rewrite):
    """An outside witness vouches for the lock."""
    rewrite.last.append(put("anchors/lock.ots", b"\x00OpenTimestamps\x00\x00Proof\x00"))


@named("A13", "files", "NOT VOUCHED FOR: RESULTS.md", status="held")
def a_text_says_what_no_record_says(rewrite):
    """The text is a part of the study."""
    rewrite.last.append(put("RESULTS.md", b"# CONFIRMED\n"))


@named("A13", "files", "NOT VOUCHED FOR: .gitattributes", status="held")
def git_is_told_to_rewrite_evidence(rewrite):
    """A clone has the bytes that were committed."""
    rewrite.last.append(put(".gitattributes", b"* text eol=crlf\n"))


@named("A13", "files", "NOT VOUCHED FOR: selection.json", status="held")
def a_selection_lies_in_a_study_without_one(rewrite):
    """A candidate was selected."""
    rewrite.last.append(put("selection.json", b"{}\n"))


@named("A13", "files", "1 file in figures/", status="held")
def a_drawing_shows_what_no_record_says(rewrite):
    """The forest plot is that of the contrasts."""
    rewrite.last.append(put("figures/forest.png", b"x"))
