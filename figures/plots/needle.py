"""Heat map of needle accuracy: prompt length by depth of the fact, a panel for each arm and budget."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from figures.drawing import formatting, page
from figures.drawing.page import INK, PALE, text_width

WIDE, HIGH = 0.56, 0.36  # inches, of a cell
GAP, TIGHT = 0.14, 0.05  # inches between panels of several lengths, and of one


class Cell(NamedTuple):
    """Accuracy (0 to 1) of one arm over the graded problems of one length and depth; seeds averaged first."""

    model: str
    budget: str
    arm: str
    task: str
    length: int
    depth: str
    accuracy: float
    problems: int


def needle_cells(lock: Mapping[str, Any], lanes: Any) -> list[Cell]:
    """Return the cells with a graded problem, in registered order, of the tasks of the needle's generator, whose
    ids are needle/<length>/<depth>/<index>. Ids of other sources ("source" in the lock) mean nothing.

    lock: its content. lanes: those of `analysis.judgement.study_files.read_study`.
    """
    generated = [task for task, item in lock["items"].items() if "source" not in item]
    rows = lanes[lanes["task"].isin(generated) & lanes["problem"].str.startswith("needle/")]
    if rows.empty:
        return []
    parts = rows["problem"].str.split("/", expand=True)
    rows = rows.assign(length=parts[1].astype(int), depth=parts[2])
    where = ["model", "budget", "arm", "task", "length", "depth"]
    means = rows.groupby([*where, "problem"], sort=False)["correct"].mean().dropna()
    statistics = means.groupby(where, sort=False).agg(["mean", "size"])
    return [Cell._make((*key, float(row["mean"]), int(row["size"]))) for key, row in statistics.iterrows()]


def needle(judged: Mapping[str, Any], cells: Sequence[Cell]) -> Figure:
    """Draw the panels: a row for each arm, a column for each budget, a block for each model. In a panel,
    lengths run down and depths to the right.

    An arm that evicts nothing has no budget and appears in every column. A cell without a graded problem is
    blank. The gid of a cell's rectangle is "model/budget/arm/task/length/depth".
    """
    models, arms = (list(dict.fromkeys(getattr(item, name) for item in cells)) for name in ("model", "arm"))
    budgets = list(dict.fromkeys(item.budget for item in cells if item.budget != "full")) or ["full"]
    lengths = sorted({(item.length, item.task) for item in cells})
    depths = sorted({item.depth for item in cells}, key=float)
    full_arms = dict.fromkeys(item.arm for item in cells if item.budget == "full")
    is_unique = len({length for length, _ in lengths}) == len(lengths)
    names = [str(length) if is_unique else f"{length} ({task})" for length, task in lengths]
    gap = TIGHT if len(lengths) == 1 else GAP

    label = max(map(text_width, [*arms, "arm"])) + 0.2
    left = page.MARGIN + label + max(map(text_width, [*names, "tokens"])) + 0.12
    panel = WIDE * max(len(depths), 3) + 0.3
    width = max(left + panel * len(budgets), 6.5)
    block = 0.75 + len(arms) * (HIGH * len(lengths) + gap)
    tasks = ", ".join(dict.fromkeys(task for _, task in lengths))
    score = "agreement with the full cache" if formatting.compares_agreement(judged["contrasts"]) else "correct answers"
    paper = page.new_sheet(
        width,
        block * len(models) + 0.1,
        "Needle accuracy by length and depth (exploratory)",
        [page.study_status(judged), f"Only the registered contrasts are confirmatory. Tasks: {tasks}."],
        [
            (
                f"Each cell: {score} in % and, below, the number of problems. Pale is 0, dark is 100; a blank "
                "cell had no graded problem. depth: share of the text before the fact. tokens: longest prompt "
                "of the task."
            ),
            *(f"{arm} evicts nothing, has no budget and is shown next to each." for arm in full_arms),
        ],
    )
    axes = paper.add_axes(0, 0, width, block * len(models) + 0.1)
    axes.set(xlim=(0, width), ylim=(block * len(models) + 0.1, 0))
    axes.axis("off")
    down = {}  # y of a line of cells, by model, arm, length and task
    for number, model in enumerate(models):
        top = number * block + 0.1
        axes.text(page.MARGIN, top + 0.1, model, va="center", weight="bold", color=INK)
        _draw_heads(axes, left, top, panel, budgets, depths)
        for row, arm in enumerate(arms):
            y = top + 0.65 + row * (HIGH * len(lengths) + gap)
            axes.text(page.MARGIN, y + HIGH / 2, arm, va="center", color=INK)
            for name, line in zip(names, lengths, strict=True):
                axes.text(left - 0.12, y + HIGH / 2, name, va="center", ha="right", color=PALE)
                down[model, arm, *line] = y
                y += HIGH
    for cell in cells:
        for budget in budgets if cell.budget == "full" else [cell.budget]:
            x = left + panel * budgets.index(budget) + WIDE * depths.index(cell.depth)
            _draw_cell(axes, x, down[cell.model, cell.arm, cell.length, cell.task], cell)
    return paper.figure


def _draw_heads(
    axes: Any, left: float, top: float, panel: float, budgets: Sequence[str], depths: Sequence[str]
) -> None:
    axes.text(page.MARGIN, top + 0.52, "arm", va="center", color=PALE)
    axes.text(left - 0.12, top + 0.52, "tokens", va="center", ha="right", color=PALE)
    for column, budget in enumerate(budgets):
        start = left + column * panel
        axes.text(start, top + 0.3, f"budget {budget}, by depth", va="center", weight="bold", color=INK)
        for index, depth in enumerate(depths):
            middle = start + WIDE * (index + 0.5)
            axes.text(middle, top + 0.52, depth, va="center", ha="center", color=PALE)


def _draw_cell(axes: Any, x: float, y: float, cell: Cell) -> None:
    fill = page.heat_colour(cell.accuracy)
    ink = page.contrasting_ink(fill)
    axes.add_patch(Rectangle((x, y), WIDE, HIGH, facecolor=fill, edgecolor="white", gid="/".join(map(str, cell[:6]))))
    middle = x + WIDE / 2
    axes.text(middle, y + 0.13, page.format_percent(cell.accuracy), va="center", ha="center", color=ink)
    axes.text(middle, y + 0.27, f"n {cell.problems}", va="center", ha="center", color=ink, size=7)
