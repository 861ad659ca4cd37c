"""Write the curves of several runs: one PNG a figure, and `index.html` with all of them in it."""

import base64
import html
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from string import Template

from recipe_slca.report import figures
from recipe_slca.report.curve_lines import Line, to_lines
from recipe_slca.report.errors import ReportError
from recipe_slca.report.run_logs import Run

_LAST_VALUES = {
    "slca/success@0.9": "Success@0.9",
    "slca/reward/process/mean": "process",
    "slca/reward/summary/mean": "summary",
    "slca/tool_turns": "tool turns",
    "slca/redundant_calls": "redundant calls",
    "slca/ungraded_share": "ungraded",
}


def write_report(runs: Sequence[Run], output: Path, smooth: int = 1) -> Path:
    """Write the figures and the page into the folder `output`; return the page.

    smooth: values are means of the last `smooth` logged ones.

    Raises:
        ReportError: no log has a metric that is drawn.
    """
    lines = to_lines(runs)
    chosen = figures.choose_figures(runs)
    if not chosen:
        raise ReportError(
            f"no log has a metric that is drawn (slca/..., actor/...): {', '.join(str(r.path) for r in runs)}"
        )
    output.mkdir(parents=True, exist_ok=True)
    for figure in chosen:
        figures.draw(figure, lines, output / figure.file, smooth)
    page = output / "index.html"
    page.write_text(_page(lines, chosen, output, smooth), encoding="utf-8", errors="replace")
    return page


def _page(lines: Sequence[Line], chosen: Sequence[figures.Figure], output: Path, smooth: int) -> str:
    drawn = {figure.file for figure in chosen}
    notes = [note for line in lines for note in line.notes()]
    notes += [f"{figure.title}: in none of the logs" for figure in figures.FIGURES if figure.file not in drawn]
    template = resources.files(__package__).joinpath("curves.html").read_text(encoding="utf-8")
    return Template(template).substitute(
        names=html.escape(", ".join(line.name for line in lines)),
        how=html.escape(_how_to_read(lines, smooth)),
        links=" ".join(f'<a href="#{figure.file}">{html.escape(figure.title)}</a>' for figure in chosen),
        notes=f'<ul class="notes">{_joined("li", notes)}</ul>' if notes else "",
        table=_table(lines, smooth),
        figures="".join(_figure(figure, output) for figure in chosen),
    )


def _how_to_read(lines: Sequence[Line], smooth: int) -> str:
    seeds = [f"{line.name}: {len(line.runs)}" for line in lines if len(line.runs) > 1]
    parts = []
    if seeds:
        parts.append(
            "Runs whose names differ only in a trailing seed are one line: its mean over seeds, with a band from "
            f"the lowest to the highest seed (seeds: {', '.join(seeds)})."
        )
    if smooth > 1:
        parts.append(f"Each value is the mean of a seed's last {smooth} logged values.")
    return " ".join(parts) or "Each run is a line."


def _table(lines: Sequence[Line], smooth: int) -> str:
    shown = {m: title for m, title in _LAST_VALUES.items() if any(line.curve(m).steps.size for line in lines)}
    rows = [f"<tr>{_joined('th', ['line', 'seeds', 'step', *shown.values()])}</tr>"]
    for line in lines:
        cells = [html.escape(line.name), str(len(line.runs)), str(min(run.last_step for run in line.runs))]
        cells += [_last_value(line, metric, smooth) for metric in shown]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return "".join(rows)


def _last_value(line: Line, metric: str, smooth: int) -> str:
    curve = line.curve(metric, smooth)
    if not curve.steps.size:
        return "none"
    spread = f"<small>{curve.low[-1]:.3f} to {curve.high[-1]:.3f}</small>" if len(line.runs) > 1 else ""
    return f"{curve.mean[-1]:.3f}{spread}"


def _figure(figure: figures.Figure, output: Path) -> str:
    image = base64.b64encode((output / figure.file).read_bytes()).decode()
    title, caption = html.escape(figure.title), html.escape(figure.caption)
    return (
        f'<figure id="{figure.file}"><h2>{title}</h2><p class="quiet">{caption}</p>'
        f'<img alt="{title}" src="data:image/png;base64,{image}"></figure>'
    )


def _joined(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)
