"""Draw the judged contrasts of a study as a forest plot.

    kv-prereg forest registrations/quickstart

Reads only verdict.json and writes figures/forest.svg and figures/forest.png into the same folder. The same
verdict gives the same SVG, byte for byte, with one version of matplotlib.
Exit status: 0 drawn; 2 there is no verdict to draw.
"""

import sys
from functools import partial
from pathlib import Path

from figures.drawing import page
from figures.plots.forest import forest
from protocol.formats.reading_command import run_command


def draw(folder: Path) -> tuple[Path, ...]:
    """Draw FOLDER/verdict.json into FOLDER/figures/forest.svg and .png. Raises NoVerdict without one."""
    return page.write_drawing(Path(folder) / "figures", forest, page.read_judged(folder))


def main(argv: list[str] | None = None) -> int:
    folder = {"folder": "folder of a confirmed registration, e.g. registrations/quickstart"}
    return run_command("forest", __doc__, folder, partial(page.draw_supported, draw), argv)


if __name__ == "__main__":
    sys.exit(main())
