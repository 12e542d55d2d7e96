"""Each error has a code, and docs/errors.md says what it means."""

import re
from pathlib import Path

import tidemark.errors
from tidemark.errors import DataLost, TidemarkError
from tidemark.pipeline.problems import FileProblem, InvalidPipelines

DOCUMENT = Path(__file__).parents[2] / "docs" / "errors.md"


def kinds() -> list[type[TidemarkError]]:
    """Those of the module, without the one that all others are made from."""
    here = vars(tidemark.errors).values()
    return [
        kind
        for kind in here
        if isinstance(kind, type) and issubclass(kind, TidemarkError) and kind is not TidemarkError
    ]


def test_the_document_has_each_code_once_by_their_letters() -> None:
    headings = re.findall(r"^## (.+)$", DOCUMENT.read_text(), re.MULTILINE)
    assert headings == sorted(kind("").code for kind in kinds())


def test_an_error_bears_its_code_and_one_of_another_module_that_of_its_family() -> None:
    lost = DataLost("it is gone", next_step="bring it back", pipeline="demo")
    assert str(lost) == "it is gone [error=data-lost pipeline=demo]\nnext: bring it back"
    wrong = InvalidPipelines([FileProblem("a.yaml", None, "source", "is missing")])
    assert wrong.code == "configuration"


def test_nothing_raises_the_error_without_a_code() -> None:
    folder = Path(tidemark.errors.__file__).parent
    for file in folder.rglob("*.py"):
        assert "raise TidemarkError(" not in file.read_text(), file
