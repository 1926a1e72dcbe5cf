"""What ``submit``, ``run``, ``validate`` and ``rerun`` give a definition: values of its params, and labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import click

from ai4s.jobq.cli.params import key_value
from ai4s.jobq.errors import DefinitionError, Problem

if TYPE_CHECKING:
    from ai4s.jobq.definition.model import WorkflowDefinition

Command = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What was given on the command line. A single ``--param`` wins over the file."""

    params: Mapping[str, str] = field(default_factory=dict)
    params_file: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_params(self) -> bool:
        return bool(self.params) or self.params_file is not None

    def values_for(self, definition: WorkflowDefinition) -> dict[str, Any]:
        """The values that these texts stand for in a definition. Raises ``DefinitionError``."""
        from ai4s.jobq.definition.params import parse_arguments
        from ai4s.jobq.definition.params_file import read_params_file

        values = read_params_file(self.params_file) if self.params_file is not None else {}
        return {**values, **parse_arguments(definition, self.params)}


def params_options(command: Command) -> Command:
    """``--param`` and ``--params-file``."""
    file = click.option(
        "--params-file", type=click.Path(), metavar="FILE", help="Values of params: a mapping in YAML or JSON."
    )
    single = click.option(
        "--param",
        "params",
        type=key_value,
        multiple=True,
        metavar="NAME=VALUE",
        help="The value of a param; may be repeated, and wins over the file.",
    )
    return single(file(command))


def one_value_each(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """These pairs as a mapping. Raises ``click.UsageError``: a name has two values."""
    values: dict[str, str] = {}
    for name, value in pairs:
        if values.setdefault(name, value) != value:
            raise click.UsageError(f"{name!r} is given two values; leave one out.")
    return values


def labels_option(text: str) -> Callable[[Command], Command]:
    """``--label``."""
    return click.option("--label", "labels", type=key_value, multiple=True, metavar="NAME=VALUE", help=text)


def with_arguments(
    paths: Sequence[str], definitions: Sequence[WorkflowDefinition], given: Arguments
) -> list[WorkflowDefinition]:
    """The definitions in these files with what was given. Raises ``DefinitionError`` with the problems of all of them."""
    from ai4s.jobq.definition.labels import with_labels
    from ai4s.jobq.definition.params import bind

    ready: list[WorkflowDefinition] = []
    problems: list[Problem] = []
    for path, definition in zip(paths, definitions, strict=True):
        try:
            bound = bind(definition, given.values_for(definition))
            ready.append(with_labels(bound, given.labels) if given.labels else bound)
        except DefinitionError as exc:
            problems += [problem if problem.source else replace(problem, source=path) for problem in exc.problems]
    if problems:
        raise DefinitionError(list(dict.fromkeys(problems)))
    return ready
