"""The pictures of docs/images: which there are, and how a screenshot becomes one. `make docs` takes them again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WIDTHS = {"wide": (1280, 900), "phone": (375, 812)}
Picture = Callable[..., None]
PICTURES = (
    "manifest-phone-light",
    "pipeline-phone-dark",
    "pipeline-wide-light",
    "pipelines-phone-light",
    "show-terminal",
    "status-terminal",
    "trigger-form-phone-light",
    "trigger-form-wide-light",
    "tutorial-done-wide-light",
    "tutorial-failed-wide-light",
    "tutorial-pipelines-wide-light",
    "tutorial-retry-wide-light",
)
MOST = 1500  # pixels from the top: a reader of a document does not scroll through a picture
COLOURS = 256  # of some 20,000 for smooth letters: the files have a third of the size


def viewport(width: str) -> dict[str, int]:
    return dict(zip(("width", "height"), WIDTHS[width], strict=True))


def make_picture(screenshot: Path, target: Path) -> None:
    """Cut a screenshot to what a document shows, with as many colours as its letters need."""
    from PIL import Image

    with Image.open(screenshot) as whole:
        shown = whole.convert("RGB").crop((0, 0, whole.width, min(whole.height, MOST)))
    # By how far apart colours are: by how many pixels have them, the green of a small sign would be lost.
    shown.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(target, optimize=True)


@contextmanager
def seen(page: Any, width: str, scheme: str) -> Iterator[Any]:
    """The same session in another window."""
    context = page.context.browser.new_context(
        base_url=page.url.partition("/tidemark")[0],
        viewport=viewport(width),
        color_scheme=scheme,
        storage_state=page.context.storage_state(),
    )
    try:
        yield context.new_page()
    finally:
        context.close()
