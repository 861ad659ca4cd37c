"""Which curves there are, and how one figure of them is drawn.

Colours are the Okabe-Ito palette without yellow, which fades on paper; line styles and markers tell lines
apart without colour.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from recipe_slca.report.curve_lines import Line
from recipe_slca.report.run_logs import Run

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v")
_PANEL_INCHES = (4.0, 2.7)
_MARKERS_IN_LINE = 8
_COLUMNS = 3


@dataclass(frozen=True)
class Figure:
    """One picture. `panels` maps a metric to its title; `caption` says how to read it."""

    file: str
    title: str
    caption: str
    panels: dict[str, str]


_TERMS = ("format", "name", "key", "value", "parallel")
_ENDINGS = ("replied", "turn_limit", "call_limit", "response_full", "aborted")
_SEGMENTS = ("tool", "summary")

FIGURES = (
    Figure(
        "success_and_turns.png",
        "Success and tool turns",
        "Success@0.9 is the share of rollouts with a process reward of at least 0.9. Good: higher success with "
        "fewer tool turns.",
        {"slca/success@0.9": "Success@0.9", "slca/tool_turns": "tool turns a rollout"},
    ),
    Figure(
        "success.png",
        "Success at every threshold",
        "The share of rollouts whose process reward reaches the threshold.",
        {f"slca/success@{threshold}": f"Success@{threshold}" for threshold in ("0.7", "0.8", "0.9", "1.0")},
    ),
    Figure(
        "rewards.png",
        "Rewards",
        "Means over rollouts. Tool and summary leave out rollouts where the segment is absent or ungraded.",
        {f"slca/reward/{name}/mean": f"{name} reward" for name in ("process", *_SEGMENTS)},
    ),
    Figure(
        "process_terms.png",
        "Terms of the process reward",
        "Which part of tool calling improves: readable blocks, tool names, argument names, argument values, "
        "and the number of calls in the first step.",
        {f"slca/reward/{term}/mean": term for term in _TERMS},
    ),
    Figure(
        "calls.png",
        "Calls",
        "Redundant calls repeat an earlier call of the rollout. Name F1 and ArgMatch compare with the gold calls.",
        {
            "slca/calls": "calls a rollout",
            "slca/redundant_calls": "redundant calls a rollout",
            "slca/name_f1": "Name F1",
            "slca/arg_match": "ArgMatch",
        },
    ),
    Figure(
        "advantages.png",
        "Segment advantages",
        "A spread that falls towards 0 means that a segment gets no signal any more.",
        {
            f"slca/advantage/{segment}/{statistic}": f"{segment} advantage, {statistic}"
            for statistic in ("std", "min", "max")
            for segment in _SEGMENTS
        },
    ),
    Figure(
        "zero_spread.png",
        "Groups without signal",
        "The share of groups whose rollouts all got the same reward in a segment: they teach it nothing. The tool "
        "segment is absent in rollouts without a call.",
        {
            "slca/zero_spread/tool": "zero spread, tool",
            "slca/zero_spread/summary": "zero spread, summary",
            "slca/tool_segment_share": "rollouts with a tool segment",
        },
    ),
    Figure(
        "endings.png",
        "Ungraded rollouts, omissions, endings",
        "Shares of rollouts. Ungraded: the judge gave no verdict. Omission: a call was due and none was made.",
        {
            "slca/ungraded_share": "ungraded",
            "slca/omission_share": "omission",
            **{f"slca/ended/{ending}": f"ended: {ending}" for ending in _ENDINGS},
        },
    ),
    Figure(
        "optimisation.png",
        "Optimisation",
        "verl's own metrics of the update.",
        {
            "actor/entropy": "entropy",
            "actor/kl_loss": "KL loss",
            "actor/pg_loss": "policy loss",
            "actor/grad_norm": "gradient norm",
            "response_length/mean": "response length, tokens",
        },
    ),
    Figure(
        "validation.png",
        "Validation",
        "Means over validation rollouts, which are not trained on.",
        {
            "slca/val/success@0.9": "Success@0.9",
            "slca/val/tool_turns": "tool turns a rollout",
            "slca/val/redundant_calls": "redundant calls a rollout",
            **{f"slca/val/reward/{name}/mean": f"{name} reward" for name in ("process", *_SEGMENTS)},
        },
    ),
)
_BY_PREFIX = (
    (
        "judge.png",
        "Judge",
        "Requests, failures and latency of the summary judge, counted since the start.",
        "slca/judge/",
    ),
    (
        "simulator.png",
        "Simulator",
        "Who answered tool calls, and how often nobody did, counted since the start.",
        "slca/sgls/",
    ),
)


def choose_figures(runs: Sequence[Run]) -> list[Figure]:
    """The figures that the logged metrics allow, each with the panels that have data.

    What services count is left out where it stayed at 0: kinds of errors, most of which never happen.
    """
    logged = sorted({metric for run in runs for metric in run.values})
    counted = {metric for run in runs for metric, values in run.values.items() if any(values.values())}
    figures = [
        Figure(figure.file, figure.title, figure.caption, {m: t for m, t in figure.panels.items() if m in logged})
        for figure in FIGURES
    ]
    for file, title, caption, prefix in _BY_PREFIX:
        panels = {
            metric: metric.removeprefix(prefix) for metric in logged if metric.startswith(prefix) and metric in counted
        }
        figures.append(Figure(file, title, caption, panels))
    return [figure for figure in figures if figure.panels]


def draw(figure: Figure, lines: Sequence[Line], path: Path, smooth: int = 1) -> None:
    """Write the figure as a PNG."""
    columns = min(_COLUMNS, len(figure.panels)) if len(figure.panels) != 4 else 2
    rows = -(-len(figure.panels) // columns)
    width, height = _PANEL_INCHES
    canvas = Canvas(figsize=(width * columns, height * rows + 0.5), layout="constrained")
    axes = canvas.subplots(rows, columns, squeeze=False).ravel()
    for panel in axes[len(figure.panels) :]:
        panel.set_visible(False)
    for panel, (metric, title) in zip(axes, figure.panels.items(), strict=False):
        panel.set_xlabel("step", fontsize=8)
        panel.set_title(title, fontsize=10, parse_math=False)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        panel.grid(color="#dddddd", linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
        for number, line in enumerate(lines):
            draw_line(panel, line, metric, number, smooth)
    handles = [Line2D([], [], **line_style(number)) for number in range(len(lines))]
    names = [line.name.replace("$", r"\$") for line in lines]
    canvas.legend(handles, names, loc="outside upper center", ncols=min(len(lines), 5), frameon=False, fontsize=9)
    canvas.savefig(path, dpi=150, metadata={"Software": None})


def draw_line(panel: Axes, line: Line, metric: str, number: int, smooth: int) -> None:
    """Draw the line's mean, and the range of its seeds as a band. number: which of the panel's styles it gets."""
    curve = line.curve(metric, smooth)
    if not curve.steps.size:
        return
    every = max(1, curve.steps.size // _MARKERS_IN_LINE)
    # Lines start their markers at different places, so that markers of near lines do not cover each other.
    panel.plot(curve.steps, curve.mean, markevery=(number % every, every), **line_style(number))
    if len(line.runs) > 1:
        colour = line_style(number)["color"]
        panel.fill_between(curve.steps, curve.low, curve.high, color=colour, alpha=0.16, linewidth=0)


def line_style(number: int) -> dict:
    """matplotlib's properties of the line with this number."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 4,
        "linewidth": 1.5,
    }
