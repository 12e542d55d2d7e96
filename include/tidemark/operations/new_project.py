"""Make a small project from files of the package: a pipeline, its DAG, its variables, the commands of a first run."""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from tidemark.errors import ConfigurationError
from tidemark.kinds import PROVIDERS

FILES = (
    "README.md",
    ".gitignore",
    "env.example",
    "pipelines/orders.yaml",
    "send_orders.py",
    "dags/tidemark_dags.py",
    "dags/tidemark_pipeline_files.py",
)


@dataclass(frozen=True)
class NewProject:
    """The files of a project, by name: ``made`` were written (in a dry run: would be), ``unchanged`` existed
    already.
    """

    folder: Path
    made: list[str]
    unchanged: list[str]
    dry_run: bool


def providers_with_projects() -> list[str]:
    """Return the names of those providers in this package that bring a project of their own."""
    return sorted(name for name, provider in PROVIDERS.by_name.items() if provider.project)


def files_of(provider: str | None) -> tuple[str, ...]:
    """Return the names of a project's files: those of a provider's project, or those of a first run."""
    return FILES if provider is None else PROVIDERS.by_name[provider].project


def make_project(folder: Path, *, provider: str | None = None, dry_run: bool = False) -> NewProject:
    """Write the files of a project that the folder lacks, and overwrite none. ``provider`` selects the project of a
    provider.

    Raises ``ConfigurationError``, and writes nothing, if files exist with another content; the error names all of them.
    """
    names = files_of(provider)
    texts = {name: _text(name, provider) for name in names}
    contents = {name: _content(folder / name) for name in names}
    other = [name for name, content in contents.items() if content not in (None, texts[name])]
    if other:
        raise ConfigurationError(
            f"{', '.join(str(folder / name) for name in other)} would be overwritten; nothing was written",
            next_step="name another folder, or move these files away",
        )
    made = [name for name, content in contents.items() if content is None]
    if not dry_run:
        for name in made:
            _write(folder / name, texts[name])
    return NewProject(folder, made, [name for name in names if name not in made], dry_run)


def _text(name: str, provider: str | None) -> bytes:
    """Return the content of a project file. The package stores it as NAME.txt without a leading dot, so that no tool
    takes it for a module or a page of the package.
    """
    file = f"{name.removeprefix('.')}.txt"
    own = None if provider is None else files(f"tidemark.providers.{provider}").joinpath("project", file)
    return (own if own is not None and own.is_file() else files(__package__).joinpath("project", file)).read_bytes()


def _content(path: Path) -> bytes | None:
    """Return the content of a file; None if nothing exists there. Something that is no file, or cannot be read, counts
    as empty, which no file of a project is.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b"" if path.is_symlink() else None
    except OSError:
        return b""


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(content)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror}", next_step="name another folder"
        ) from None
