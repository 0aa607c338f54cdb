"""What mkdocs needs to show the pages of this repository as a site.

Pages that lie outside of docs/ get a place in the site, pictures that a page shows come along, and a link to
any other file goes to the repository where its address is known (repo_url); else it is plain words. A link to
nothing is left as it is, for mkdocs to refuse.
"""

import json
import posixpath
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
ELSEWHERE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/RESULTS.md": "results.md",
    "docs/notebook/first_study.ipynb": "first-study.md",
}
"""Pages from outside of docs/, and the notebook, by their path in the repository: their place in the site."""
GENERATED = ("docs/files.md",)  # by docs/generate.py; git does not have it
PICTURES = (".png", ".svg")
LINK = re.compile(r"\[((?:!?\[[^\]]*\]\([^)]*\)|[^\[\]])*)\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def on_files(files: "Files", config: Any) -> "Files":
    """The pages from elsewhere, and the pictures that any page shows."""
    from mkdocs.structure.files import File

    sources = [*ELSEWHERE, *(f"docs/{file.src_uri}" for file in files.documentation_pages())]
    for source, place in ELSEWHERE.items():
        files.append(File.generated(config, place, content=text(source)))
    for picture in sorted({one for source in sources for one in pictures(source, text(source))}):
        files.append(File.generated(config, picture, abs_src_path=str(ROOT / picture)))
    return files


def on_page_markdown(markdown: str, page: "Page", config: Any, files: "Files") -> str:
    place = page.file.src_uri
    source = {there: here for here, there in ELSEWHERE.items()}.get(place, f"docs/{place}")
    return linked(markdown, source, place, config.repo_url)


def text(source: str) -> str:
    """A page as Markdown. A notebook has its own between its code; what its cells print is not in it."""
    read = (ROOT / source).read_text(encoding="utf-8")
    if not source.endswith(".ipynb"):
        return read
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(read)["cells"]]
    return "\n\n".join(said if kind == "markdown" else f"```python\n{said}\n```" for kind, said in cells) + "\n"


def linked(markdown: str, source: str, place: str, repository: str | None) -> str:
    """`markdown` of the file `source` with the links that it needs at `place` in the site."""

    def link(found: re.Match[str]) -> str:
        words, target = LINK.sub(link, found[1]), found[2]
        path, hash_, anchor = target.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return f"[{words}]({target})"
        there = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if there in ELSEWHERE or (there.startswith("docs/") and ((ROOT / there).is_file() or there in GENERATED)):
            inside = ELSEWHERE.get(there, there.removeprefix("docs/"))
            return f"[{words}]({_relative(inside, place)}{hash_}{anchor})"
        if there.endswith(PICTURES):
            return f"[{words}]({_relative(there, place)})"
        if not (ROOT / there).exists():
            return f"[{words}]({target})"
        return f"[{words}]({repository.rstrip('/')}/blob/HEAD/{there}{hash_}{anchor})" if repository else words

    return "".join(part if CODE.fullmatch(part) else LINK.sub(link, part) for part in _with_code(markdown))


def pictures(source: str, markdown: str) -> Iterable[str]:
    """Those outside of docs/ that a page links, by their path in the repository."""
    targets = (target for part in _with_code(markdown) for target in re.findall(r"\]\(([^)\s#]+)", part))
    paths = (posixpath.normpath(posixpath.join(posixpath.dirname(source), target)) for target in targets)
    return {
        path for path in paths if path.endswith(PICTURES) and not path.startswith("docs/") and (ROOT / path).is_file()
    }


def _with_code(markdown: str) -> Iterator[str]:
    """The text in its order, code apart from the rest."""
    start = 0
    for code in CODE.finditer(markdown):
        yield from (markdown[start : code.start()], code[0])
        start = code.end()
    yield markdown[start:]


def _relative(path: str, place: str) -> str:
    return posixpath.relpath(path, posixpath.dirname(place) or ".")
