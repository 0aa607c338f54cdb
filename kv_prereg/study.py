"""A registration in its folder, as an object."""

import html
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from figures.drawing.verdict_formats import Summary


class Refused(RuntimeError):
    """A command refused, and wrote nothing; the message is its line. status: its exit status (docs/commands.md)."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Study:
    """A registration: the folder with its protocol.toml. Whatever is asked for is read from its files then.

    `verdict`, `contrasts`, `arms` and the formats of its table judge the records again first: they raise NoVerdict, a
    ValueError, without a verdict and for one that the records do not support.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def __repr__(self) -> str:
        return f"Study({str(self.folder)!r})"

    def register(self) -> dict[str, Any]:
        """Check every field, try the rule, and lock. Once. Returns what the command prints with --json, as do the
        others; raises Refused.
        """
        return self._run("register")

    def rehearse(self) -> dict[str, Any]:
        """Run the grid on a few development problems; nothing is locked or stored."""
        return self._run("rehearse")

    def probe(self) -> dict[str, Any]:
        """Run the development problems of a locked study, as often as wanted."""
        return self._run("probe")

    def confirm(self) -> dict[str, Any]:
        """Run the held-out problems, judge and draw: once. Killed, it continues where it stopped."""
        return self._run("confirm")

    def audit(self, *options: str) -> dict[str, Any]:
        """Check everything from the files alone. options: of kv-prereg audit, such as "--replay".

        Returns `verdict`, None where one cannot be told, and `findings`, one for each item; that something failed does
        not raise.
        """
        return self._run("audit", *options)

    def status(self) -> dict[str, Any]:
        """Return how far the study is, and the next step."""
        found: list[dict[str, Any]] = self._run("status")["registrations"]
        if len(found) > 1:
            raise Refused(f"{self.folder}: contains {len(found)} registrations; name the folder of one", 2)
        return found[0]

    def report(self) -> Path:
        """Write the report, and return its file."""
        self._run("report", as_json=False)
        return self.folder / "report.html"

    @property
    def lock(self) -> dict[str, Any]:
        """The locked document: docs/records.md."""
        from analysis.judgement.study_files import read_document

        return read_document(self.folder / "lock.json")[1]

    @property
    def verdict(self) -> str:
        """The word of the verdict and its caveats, as every table prints it: "CONFIRMED (UNWITNESSED)"."""
        from figures.drawing.formatting import verdict_text

        return verdict_text(self._read_judgement())

    @property
    def contrasts(self) -> "pd.DataFrame":
        """The registered contrasts, a row each, as numbers: difference, low and high from -1 to 1 (subject minus
        `against`), p, cache_ratio, charge in points, better, worse.
        """
        return self._frame("contrasts")

    @property
    def arms(self) -> "pd.DataFrame":
        """The arms in every model, task and budget, a row each: accuracy, slots, bytes, tokens, failures."""
        return self._frame("arms")

    @property
    def records(self) -> "pd.DataFrame":
        """Every registered lane, a row each; the columns are those of `analysis.judgement.study_table.Study`.

        Raises RecordError, a ValueError, without a verdict: nothing is read from held-out records while a study runs.
        """
        from analysis.compare.registered_study import read_judged

        return read_judged(self.folder).lanes

    def to_markdown(self) -> str:
        """Return the verdict, its remarks and contrasts as Markdown."""
        from figures.drawing.verdict_formats import format_markdown

        return format_markdown(self._summarize())

    def to_latex(self) -> str:
        """Return the same as a LaTeX table for the package booktabs."""
        from figures.drawing.verdict_formats import format_latex

        return format_latex(self._summarize())

    def _repr_html_(self) -> str:
        """Show the table in a notebook, or how far the study is."""
        from figures.drawing.page import NoVerdict
        from figures.drawing.verdict_formats import format_html

        try:
            return format_html(self._summarize())
        except NoVerdict as reason:
            return f"<p>{html.escape(str(reason))}</p>"

    def _summarize(self) -> "Summary":
        from figures.table import summarize

        return summarize(self._read_judgement())

    def _frame(self, table: str) -> "pd.DataFrame":
        import pandas as pd

        from figures.drawing.verdict_formats import number_rows

        return pd.DataFrame(number_rows(self._read_judgement()[table]))

    def _read_judgement(self) -> dict[str, Any]:
        from figures.drawing.page import read_supported_judgement

        return read_supported_judgement(self.folder)

    def _run(self, command: str, *options: str, as_json: bool = True) -> dict[str, Any]:
        """Run a command on the folder. Its progress goes to standard error. Raises Refused."""
        line = [sys.executable, "-P", "-m", "protocol", command, str(self.folder), *options, *["--json"] * as_json]
        told = None if as_json else subprocess.PIPE  # where there is no JSON, the last line is the refusal
        done = subprocess.run(line, stdout=subprocess.PIPE, stderr=told, text=True, encoding="utf-8")
        result: dict[str, Any] = json.loads(done.stdout or "{}") if as_json else {}
        if lines := (done.stderr or "").splitlines():
            sys.stderr.write(done.stderr)
            result |= {"why": lines[-1]} if done.returncode else {}
        if "why" in result or (done.returncode and not result):  # a refusal, a fault, or nothing printed
            raise Refused(result.get("why", f"kv-prereg {command}: exit status {done.returncode}"), done.returncode)
        return result
