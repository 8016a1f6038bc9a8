"""Every command of the program with its arguments and options, one line each, as its --help names them."""
import re
import subprocess


def help_of(*command):
    return subprocess.run(["tessera", *command, "--help"], check=True, capture_output=True, text=True).stdout


def section(page, title):
    """What the lines of a section of a help page name, without types and defaults."""
    found = re.search(rf"^{title}:\n(.*?)(?=^\S|\Z)", page, re.M | re.S)
    return re.findall(r"^  (\S+)", found.group(1), re.M) if found else []


def show(*command):
    page = help_of(*command)
    inner = section(page, "Subcommands")
    for name in inner:
        show(*command, name)
    if not inner:
        names = [name for title in ("Positionals", "Options") for name in section(page, title)]
        print(" ".join(command) + ":", *names)


show()
