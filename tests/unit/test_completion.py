"""Completion in shells, by the protocol in which a shell really asks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidemark.cli import main
from tidemark.cli.options import COMPLETE

PIPELINE = "pipeline: {name}\nsource: not checked here\n"


@pytest.fixture
def pipelines(tmp_path: Path) -> Path:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (folder / "one.yaml").write_text(PIPELINE.format(name="flights"))
    (folder / "two.yml").write_text(PIPELINE.format(name='"orders"'))
    (folder / "broken.yaml").write_text("description: x\n: :\npipeline: orders-old  # moved\n")
    (folder / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    return folder


def asked(typed: str, **env: str) -> list[str]:
    """What bash is answered when TAB is pressed after these words."""
    words = typed.split(" ")
    protocol = {COMPLETE: "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    done = CliRunner().invoke(main.main, [], prog_name="tidemark", env={**protocol, **env}, complete_var=COMPLETE)
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def takes_a_pipeline() -> list[str]:
    return [
        words
        for words, command in main.NAMED.items()
        if any(parameter.name == "pipeline_name" for parameter in command.load().params)
    ]


@pytest.mark.parametrize("command", takes_a_pipeline())
def test_names_of_pipelines_complete_wherever_one_is_wanted(pipelines: Path, command: str) -> None:
    words = f"{command} t 0 1 --pipeline" if command == "where" else command
    env = {"TIDEMARK_PIPELINES": str(pipelines)}
    assert asked(f"tidemark {words} ", **env) == ["flights", "orders", "orders-old"]
    assert asked(f"tidemark {words} or", **env) == ["orders", "orders-old"]
    assert asked(f"tidemark {words} x", **env) == []


def test_the_folder_given_on_the_line_counts_and_one_that_is_not_there_is_silent(pipelines: Path) -> None:
    nowhere = {"TIDEMARK_PIPELINES": "/nowhere"}
    assert asked(f"tidemark --pipelines {pipelines} run fl", **nowhere) == ["flights"]
    assert asked("tidemark run ", **nowhere) == []


def test_commands_and_options_complete() -> None:
    assert asked("tidemark re") == ["retry", "replay", "rename", "retire", "repair"]
    assert asked("tidemark rename ") == ["pipeline", "sink"]
    assert asked("tidemark print completion ") == ["bash", "zsh", "fish"]
    assert "--take-over" in asked("tidemark replay --")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_of_its_shell_and_asks_for_tidemark(shell: str) -> None:
    done = CliRunner().invoke(main.main, ["print", "completion", shell])
    assert done.exit_code == 0
    assert f"{COMPLETE}={shell}_complete" in done.stdout
    assert "tidemark" in done.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True)


def test_bash_completes_with_the_printed_script(pipelines: Path, tmp_path: Path) -> None:
    """The whole way: the script is read by a bash, and its function called as TAB does it."""
    command = tmp_path / "tidemark"
    command.write_text(f"#!{sys.executable}\nfrom tidemark.cli.main import main\nmain(prog_name='tidemark')\n")
    command.chmod(0o755)
    script = CliRunner().invoke(main.main, ["print", "completion", "bash"]).stdout
    press = 'COMP_WORDS=(tidemark run fl) COMP_CWORD=2; _tidemark_completion tidemark; printf "%s\\n" "${COMPREPLY[@]}"'
    env = {**os.environ, "TIDEMARK_PIPELINES": str(pipelines), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{script}\n{press}"], env=env, text=True, capture_output=True, check=True
    )
    assert done.stdout == "flights\n"
    assert done.stderr == ""
