"""Labels given at submit."""

from __future__ import annotations

import pytest

from ai4s.jobq.definition.labels import with_labels
from ai4s.jobq.definition.model import WorkflowDefinition
from ai4s.jobq.errors import DefinitionError

DEFINITION = WorkflowDefinition(name="w", tasks=(), labels={"team": "alloys", "stage": "test"})


def test_labels_given_join_those_of_the_file() -> None:
    """B19: and replace one of the same name."""
    labelled = with_labels(DEFINITION, {"stage": "prod", "run": "7"})

    assert labelled.labels == {"team": "alloys", "stage": "prod", "run": "7"}
    assert labelled.digest() == DEFINITION.digest()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"": "x"}, "the name of a label has 1 to 63 characters"),
        ({"a=b": "x"}, "labels['a=b']: 'a=b': the name of a label is printable text without '='"),
        ({"a": "x" * 256}, "labels.a: 'a': the value of a label has at most 255 characters"),
        ({f"l{n}": "" for n in range(31)}, "labels: 33 labels, at most 32 are allowed"),
        ({f"l{n}": "x" * 255 for n in range(16)}, "bytes together, at most 4 KiB"),
    ],
)
def test_wrong_label_is_refused(given: dict[str, str], expected: str) -> None:
    """B19: by the rules of the file."""
    with pytest.raises(DefinitionError) as caught:
        with_labels(DEFINITION, given)

    assert expected in str(caught.value)
