"""The picture of a workflow's history: for each job when it waited, when it ran, and how each attempt ended.

Tasks come first; undo jobs and hooks follow under headings of their own, with bars that are outlines, the undo jobs' dashed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ai4s.jobq.drawing.palette import EDGE, FAINT_INK, GRID, INK, UNDO_DASH, Colour, colour_of, draw_legend
from ai4s.jobq.drawing.svg import Svg, bold_px, shortened, text_px
from ai4s.jobq.engine.job_names import JobRole
from ai4s.jobq.engine.states import TaskState
from ai4s.jobq.views.history import Attempt, WorkflowHistory
from ai4s.jobq.views.layers import layer_of

MOST_ROWS = 400  # of tasks; beyond that those of a layer share a row. As many of undo jobs
ROW_PX = 18.0
BAR_PX = 11.0
WAIT_PX = 3.0
HEADING_PX = 22.0
MARGIN = 20.0
TOP_PX = 76.0
CHART_PX = 900.0
NAME_PX = 220.0  # longest name
LEAST_BAR_PX = 1.5  # so that the shortest attempt is seen
TICKS = 9  # about so many

_WAIT = "#afb8c1"
_STEPS_S = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800),
    *(3600, 2 * 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400),
)
_LEGEND: Mapping[str, str] = {
    "waits on its queue": _WAIT,
    **{str(state): colour_of(state).strong for state in (TaskState.COMPLETED, TaskState.FAILED, TaskState.RUNNING)},
    "lost or stopped": colour_of(TaskState.CANCELLED).strong,
}
_WORDS: Mapping[JobRole, str] = {JobRole.TASK: "task", JobRole.UNDO: "undo job", JobRole.HOOK: "hook"}
_NOT_ITS_FAULT = frozenset({"lost", "preempted", "cancelled"})


def gantt_svg(history: WorkflowHistory) -> str:
    """The history as an SVG document: a row per job in order of its start, a bar per attempt."""
    svg = Svg()
    sections = _sections(history.attempts)
    chart = _chart(history, sections)
    _draw_title(svg, history, sections)
    bottom = TOP_PX + max(sum(section.height for section in sections), ROW_PX)
    chart.draw_axis(svg, bottom=bottom)
    top = TOP_PX
    for section in sections:
        chart.draw_section(svg, top, section)
        top += section.height
    if not sections:
        svg.text(MARGIN, TOP_PX + 13, "Nothing was started.", fill=FAINT_INK)
    return svg.document(
        chart.left + CHART_PX + 3 * MARGIN, bottom + MARGIN, title=f"{history.name} {history.workflow_id}"
    )


@dataclass(frozen=True, slots=True)
class _Section:
    """The rows of all jobs of one role, by what they are called."""

    role: JobRole
    rows: Mapping[str, Sequence[Attempt]]

    @property
    def heading(self) -> str:
        """Nothing above tasks: they are what the picture is of."""
        return "" if self.role is JobRole.TASK else f"{_WORDS[self.role]}s"

    @property
    def height(self) -> float:
        return ROW_PX * len(self.rows) + HEADING_PX * bool(self.heading)

    @property
    def attempts(self) -> list[Attempt]:
        return [attempt for attempts in self.rows.values() for attempt in attempts]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chart:
    """Where times are on the paper."""

    left: float
    begins_at: datetime
    ends_at: datetime

    @property
    def span_s(self) -> float:
        return max((self.ends_at - self.begins_at).total_seconds(), 0.001)

    def x(self, time: datetime) -> float:
        return self.left + CHART_PX * (time - self.begins_at).total_seconds() / self.span_s

    def draw_axis(self, svg: Svg, *, bottom: float) -> None:
        step_s = _step(self.span_s)
        for number in range(int(self.span_s / step_s) + 1):
            x = self.left + CHART_PX * number * step_s / self.span_s
            svg.line(x, TOP_PX - 4, x, bottom, stroke=GRID)
            for y in (TOP_PX - 9, bottom + 11):
                svg.text(x, y, duration_text(number * step_s), fill=FAINT_INK, size=10, anchor="middle")

    def draw_section(self, svg: Svg, top: float, section: _Section) -> None:
        if section.heading:
            svg.line(MARGIN, top + HEADING_PX / 3, self.left + CHART_PX, top + HEADING_PX / 3, stroke=EDGE)
            svg.text(MARGIN, top + HEADING_PX - 2, section.heading, fill=FAINT_INK, size=10)
            top += HEADING_PX
        for number, (name, attempts) in enumerate(section.rows.items()):
            self._draw_row(svg, top + ROW_PX * number, name, attempts)

    def _draw_row(self, svg: Svg, top: float, name: str, attempts: Sequence[Attempt]) -> None:
        svg.text(self.left - 8, top + 13, shortened(name, NAME_PX), fill=INK, anchor="end")
        for attempt in attempts:
            self._draw_attempt(svg, top, attempt)

    def _draw_attempt(self, svg: Svg, top: float, attempt: Attempt) -> None:
        ends_at = attempt.ended_at or self.ends_at
        title = _title(attempt)
        if attempt.ready_at is not None:
            x, width = self._place(attempt.ready_at, attempt.started_at or ends_at)
            svg.rect(
                x, top + (ROW_PX - WAIT_PX) / 2, width, WAIT_PX, fill=_WAIT, radius=min(2.0, width / 3), title=title
            )
        if attempt.started_at is not None or attempt.ended_at is not None:
            x, width = self._place(attempt.started_at or ends_at, ends_at)
            _draw_bar(svg, x, top + (ROW_PX - BAR_PX) / 2, width, attempt, title=title)

    def _place(self, since: datetime, until: datetime) -> tuple[float, float]:
        """Where a bar begins, and how long it is."""
        x = max(self.x(since), self.left)
        return x, max(self.x(until) - x, LEAST_BAR_PX)


def _draw_bar(svg: Svg, x: float, y: float, width: float, attempt: Attempt, *, title: str) -> None:
    colour, radius = _colour(attempt), min(2.0, width / 3)
    match attempt.role:
        case JobRole.TASK:
            svg.rect(x, y, width, BAR_PX, fill=colour.strong, radius=radius, title=title)
        case JobRole.UNDO:
            svg.rect(
                x, y, width, BAR_PX, fill=colour.area, stroke=colour.strong, radius=radius, dash=UNDO_DASH, title=title
            )
        case JobRole.HOOK:
            svg.rect(x, y, width, BAR_PX, fill=colour.area, stroke=colour.strong, radius=radius, title=title)


def duration_text(seconds: float) -> str:
    """A length of time, short: ``350ms``, ``2.5s``, ``4m10s``, ``3h05m``, ``2d04h``."""
    if seconds == 0:
        return "0"
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}".rstrip("0").rstrip(".") + "s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest_s:02d}s" if rest_s else f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02d}m" if minutes else f"{hours}h"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02d}h" if hours else f"{days}d"


def _sections(attempts: Sequence[Attempt]) -> list[_Section]:
    """The rows of tasks, of undo jobs and of hooks, where there are any."""
    found = [_Section(role, _rows([attempt for attempt in attempts if attempt.role is role])) for role in JobRole]
    return [section for section in found if section.rows]


def _rows(attempts: Sequence[Attempt]) -> dict[str, list[Attempt]]:
    """The attempts of each row, rows in order of their first one; a row is a job, of many jobs a layer."""
    by_layer = len({attempt.task for attempt in attempts}) > MOST_ROWS
    rows: dict[str, list[Attempt]] = {}
    for attempt in sorted(attempts, key=lambda attempt: list(_times(attempt))[:1]):
        rows.setdefault(layer_of(attempt.task) if by_layer else attempt.task, []).append(attempt)
    return dict(list(rows.items())[:MOST_ROWS])


def _times(attempt: Attempt) -> Iterator[datetime]:
    return (time for time in (attempt.ready_at, attempt.started_at, attempt.ended_at) if time is not None)


def _chart(history: WorkflowHistory, sections: Sequence[_Section]) -> _Chart:
    shown = [attempt for section in sections for attempt in section.attempts]
    times = [time for attempt in shown for time in _times(attempt)]
    longest = max((text_px(shortened(name, NAME_PX)) for section in sections for name in section.rows), default=0.0)
    begins_at = min(times, default=history.created_at)
    going_on = any(attempt.ended_at is None for attempt in shown)
    ends_at = max([*times, begins_at, *([history.as_of] if going_on else [])])
    if ends_at == begins_at:
        ends_at += timedelta(milliseconds=1)
    return _Chart(left=MARGIN + longest + 8, begins_at=begins_at, ends_at=ends_at)


def _step(span_s: float) -> float:
    """Seconds between two marks of the axis."""
    return next((step for step in _STEPS_S if span_s / step <= TICKS), 86_400 * -(-span_s // (86_400 * TICKS)))


def _draw_title(svg: Svg, history: WorkflowHistory, sections: Sequence[_Section]) -> None:
    svg.text(MARGIN, 24, history.name, bold=True, size=15)
    attempts = sum(len(section.attempts) for section in sections)
    jobs = {role: {attempt.task for attempt in history.attempts if attempt.role is role} for role in JobRole}
    shown = {section.role: len({attempt.task for attempt in section.attempts}) for section in sections}
    named = [_counted(shown.get(role, 0), role) for role in JobRole if role is JobRole.TASK or jobs[role]]
    more = sum(map(len, jobs.values())) - sum(shown.values())
    facts = f"{history.workflow_id} · {history.status} · {attempts:,} attempts of {', '.join(named)}"
    facts += f", {more:,} more are not shown" if more else ""
    svg.text(MARGIN + bold_px(history.name, 15) + 12, 24, facts, fill=FAINT_INK)
    draw_legend(svg, MARGIN, 46, _LEGEND)


def _counted(number: int, role: JobRole) -> str:
    return f"{number:,} {_WORDS[role]}{'s' * (number != 1)}"


def _colour(attempt: Attempt) -> Colour:
    return colour_of(TaskState.CANCELLED if attempt.cause in _NOT_ITS_FAULT else attempt.outcome)


def _title(attempt: Attempt) -> str:
    """What the pointer tells of an attempt."""
    how = [str(attempt.outcome)]
    if attempt.cause:
        how.append(attempt.cause if attempt.exit_code is None else f"{attempt.cause}, exit code {attempt.exit_code}")
    facts = [
        f"{attempt.task}, attempt {attempt.attempt}: {', '.join(how)}",
        *(f"{what} {duration_text(seconds)}" for what, seconds in _lengths(attempt) if seconds is not None),
        *([f"worker {attempt.worker}"] if attempt.worker else []),
    ]
    return "\n".join(facts)


def _lengths(attempt: Attempt) -> tuple[tuple[str, float | None], ...]:
    return (("waited", attempt.wait_s), ("ran", attempt.run_s))
