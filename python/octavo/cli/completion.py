"""`octavo completion`: the script by which a shell completes commands and options."""

from typer._completion_shared import get_completion_script

from octavo.base.errors import choose
from octavo.base.files import write_standard_output
from octavo.cli import COMPLETE_VARIABLE
from octavo.cli.groups import argument, command
from octavo.cli.guard import guarded

SHELLS = ("bash", "zsh", "fish")
_EPILOG = """\b
Examples:
  octavo completion bash > ~/.local/share/bash-completion/completions/octavo
  octavo completion zsh > ~/.zfunc/_octavo
  octavo completion fish > ~/.config/fish/completions/octavo.fish
"""


@command("completion", epilog=_EPILOG)
def completion(
    shell: str = argument("SHELL", "bash, zsh or fish."),
) -> None:
    """Print the script that completes commands and options of octavo in a shell."""
    with guarded():
        script = get_completion_script(
            prog_name="octavo",
            complete_var=COMPLETE_VARIABLE,
            shell=choose(shell, SHELLS, "shell"),
        )
        write_standard_output(f"{script.strip()}\n")
