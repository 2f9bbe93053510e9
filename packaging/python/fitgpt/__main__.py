"""Runs the program that was installed with this package."""

import os
import sys
import sysconfig


def candidates():
    """Paths where installers put the program, the nearest first."""
    name = "fitgpt" + (sysconfig.get_config_var("EXE") or "")
    # With `pip install --target` the scripts lie beside the packages.
    beside = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folders = [
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", scheme=sysconfig.get_preferred_scheme("user"))
        if sys.version_info >= (3, 10)
        else None,
        os.path.join(beside, "bin"),
    ]
    return [os.path.join(folder, name) for folder in folders if folder]


def main():
    tried = candidates()
    for program in tried:
        if os.path.isfile(program):
            if os.name == "posix":
                os.execv(program, [program] + sys.argv[1:])
            import subprocess

            return subprocess.call([program] + sys.argv[1:])
    print("fitgpt: the program was not found at " + " or ".join(tried), file=sys.stderr)
    print("fitgpt: install the package again: pip install --force-reinstall fitgpt", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
