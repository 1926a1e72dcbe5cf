"""``workflow submit`` and ``workflow validate``: files in, ids or problems out."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ai4s.jobq.cli.arguments import Arguments, labels_option, one_value_each, params_options, with_arguments
from ai4s.jobq.cli.bridge import Invocation
from ai4s.jobq.cli.render import submitted_line
from ai4s.jobq.cli.terminal import is_terminal, put, put_json, say
from ai4s.jobq.errors import DefinitionError, Problem

if TYPE_CHECKING:
    from ai4s.jobq.client import BatchResult, WorkflowClient
    from ai4s.jobq.definition.load import Report
    from ai4s.jobq.definition.model import WorkflowDefinition

MAX_PROBLEMS_SHOWN = 1000  # of one file; nobody reads further


@click.command()
@click.argument("files", nargs=-1, type=click.Path())
@click.option("--id", "workflow_id", help="The id of the workflow, for a single file.  [default: random]")
@click.option(
    "--concurrency", type=click.IntRange(1, 256), default=20, show_default=True, help="Submissions at a time."
)
@click.option("--max-fan-in", type=int, help="Accepted and not needed: any number of parents works as it is.")
@params_options
@labels_option("A label, beside those of the file; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print what was submitted as JSON.")
@click.pass_obj
def submit(
    invocation: Invocation,
    files: Sequence[str],
    workflow_id: str | None,
    concurrency: int,
    max_fan_in: int | None,
    params: Sequence[tuple[str, str]],
    params_file: str | None,
    labels: Sequence[tuple[str, str]],
    as_json: bool,
) -> None:
    """Submit workflows and print their ids.

    FILES are YAML or JSON definitions; without any, paths are read from stdin, one per line. All files are checked before
    any is submitted, and all are given the same params and labels. A submitted workflow is pending until a coordinator sees
    it.
    """
    paths = list(files) or _paths_from_stdin()
    if workflow_id is not None and len(paths) > 1:
        raise click.UsageError("--id cannot be used with multiple files.")
    if max_fan_in is not None:
        say("--max-fan-in is not needed: tasks may have any number of parents. It changes nothing.")
    invocation.target()
    given = Arguments(params=one_value_each(params), params_file=params_file, labels=one_value_each(labels))
    definitions = with_arguments(paths, load_all(paths), given)
    if len(definitions) == 1:
        _submit_one(invocation, definitions[0], workflow_id, as_json=as_json)
    else:
        _submit_many(invocation, paths, definitions, concurrency, as_json=as_json)


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path())
@params_options
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def validate(files: Sequence[str], params: Sequence[tuple[str, str]], params_file: str | None, as_json: bool) -> None:
    """Check definitions without a store.

    Reports every problem of every file. Exits with 1 when a file has a problem; warnings do not count. Values of params are
    checked where any are given.
    """
    from ai4s.jobq.definition.load import check_file

    given = Arguments(params=one_value_each(params), params_file=params_file)
    reports = [_with_arguments(check_file(path), given) for path in files]
    if as_json:
        put_json([_report_json(report) for report in reports])
    for report in reports:
        if report.definition is not None and not as_json:
            put(f"OK    {report.source}  ({_count(len(report.definition.tasks), 'task')})")
        _say_findings(report)
    if any(report.definition is None for report in reports):
        raise click.exceptions.Exit(1)


@click.command()
def schema() -> None:
    """Print the JSON Schema of definitions."""
    from ai4s.jobq.definition.schema import schema as definition_schema

    put_json(definition_schema())


def load_all(paths: Sequence[str]) -> list[WorkflowDefinition]:
    """The definitions in these files, their warnings said. Raises ``DefinitionError`` with the problems of all files."""
    from ai4s.jobq.definition.load import check_file

    reports = [check_file(path) for path in paths]
    problems = [problem for report in reports for problem in report.problems]
    if problems:
        raise DefinitionError(problems)
    for warning in (warning for report in reports for warning in report.warnings):
        say(f"Warning: {warning}")
    return [report.definition for report in reports if report.definition is not None]


def _with_arguments(report: Report, given: Arguments) -> Report:
    """The report, with what is wrong with the values that were given."""
    if report.definition is None or not given.has_params:
        return report
    try:
        with_arguments([report.source], [report.definition], given)
    except DefinitionError as exc:
        return replace(report, definition=None, problems=exc.problems)
    return report


def _paths_from_stdin() -> list[str]:
    paths = [] if sys.stdin.isatty() else [line.strip() for line in sys.stdin if line.strip()]
    if not paths:
        raise click.UsageError("No definition files provided.")
    return paths


def _submit_one(
    invocation: Invocation, definition: WorkflowDefinition, workflow_id: str | None, *, as_json: bool
) -> None:
    submission = invocation.ask(lambda client: client.submit(definition, workflow_id=workflow_id))
    if submission.created:
        say(submitted_line(definition.name, definition.roots(), len(definition.tasks), submission.workflow_id))
    else:
        say(f'"{definition.name}" is there already as {submission.workflow_id}, unchanged.')
    if as_json:
        put_json(_submitted_json(invocation, definition, submission.workflow_id, created=submission.created))
    else:
        put(submission.workflow_id)


def _submit_many(
    invocation: Invocation,
    paths: Sequence[str],
    definitions: Sequence[WorkflowDefinition],
    concurrency: int,
    *,
    as_json: bool,
) -> None:
    results = invocation.ask(lambda client: _submit_all(client, paths, definitions, concurrency, print_ids=not as_json))
    done = [
        (definition, result.submission)
        for definition, result in zip(definitions, results, strict=True)
        if result.submission is not None
    ]
    if as_json:
        put_json(
            [
                {"file": path, "error": str(result.error)}
                if result.submission is None
                else {
                    "file": path,
                    **_submitted_json(
                        invocation, definition, result.submission.workflow_id, created=result.submission.created
                    ),
                }
                for path, definition, result in zip(paths, definitions, results, strict=True)
            ]
        )
    tasks = sum(len(definition.tasks) for definition, _ in done)
    say(f"Submitted {len(done)}/{len(definitions)} workflows ({_count(tasks, 'task')})")
    failed = [result.error for result in results if result.error is not None]
    if failed:
        raise click.exceptions.Exit(failed[0].exit_code)


async def _submit_all(
    client: WorkflowClient,
    paths: Sequence[str],
    definitions: Sequence[WorkflowDefinition],
    concurrency: int,
    *,
    print_ids: bool,
) -> list[BatchResult]:
    """Submit, and print each id in the order of the files as soon as that is possible."""
    results: list[BatchResult] = []
    shows_bar = is_terminal(sys.stderr)
    async for result in client.submit_batch(definitions, concurrency=concurrency):
        path = paths[len(results)]
        results.append(result)
        if shows_bar:
            sys.stderr.write(f"\rSubmitted {len(results)}/{len(definitions)} \x1b[K")
        if result.error is not None:
            say(f"Error: {path}: {result.error}")
        elif result.submission is not None and print_ids:
            put(result.submission.workflow_id)
    if shows_bar:
        sys.stderr.write("\r\x1b[K")
    return results


def _submitted_json(
    invocation: Invocation, definition: WorkflowDefinition, workflow_id: str, *, created: bool
) -> dict[str, Any]:
    return {
        "workflow_id": workflow_id,
        "name": definition.name,
        "tasks": len(definition.tasks),
        "roots": definition.roots(),
        "created": created,
        "target": invocation.target().name,
    }


def _say_findings(report: Report) -> None:
    for word, findings in (("FAIL ", report.problems), ("WARN ", report.warnings)):
        for finding in findings[:MAX_PROBLEMS_SHOWN]:
            say(f"{word} {finding}")
        if len(findings) > MAX_PROBLEMS_SHOWN:
            say(f"{word} {report.source}: and {len(findings) - MAX_PROBLEMS_SHOWN} more")


def _report_json(report: Report) -> dict[str, Any]:
    return {
        "file": report.source,
        "ok": report.definition is not None,
        "tasks": len(report.definition.tasks) if report.definition is not None else None,
        "problems": _problems_json(report.problems),
        "warnings": _problems_json(report.warnings),
    }


def _problems_json(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    return [
        {
            "line": problem.line,
            "column": problem.column,
            "path": problem.path,
            "message": problem.message,
            "hint": problem.hint,
        }
        for problem in problems
    ]


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"
