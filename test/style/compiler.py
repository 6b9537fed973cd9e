"""The compiler of a configured build folder, for the checks in this folder."""

import json
import os
import shlex


def call(build, kinds=("-I", "-isystem", "-D", "-std=")):
    """The command that checks a source, with all flags of these kinds that any source of the build has. Folders of -I
    are relative to the build folder."""
    commands = json.loads((build / "compile_commands.json").read_text())
    words = [word for command in commands for word in shlex.split(command["command"])]
    compiler = [word for word in shlex.split(commands[0]["command"])[:2] if os.path.basename(word) != "ccache"][:1]
    flags = []
    for word in words:
        if word.startswith(kinds) and not word.endswith(".p") and word not in flags:
            flags.append(word)
    return [*compiler, *flags, "-fsyntax-only"]
