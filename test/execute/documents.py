#!/usr/bin/python3
"""Every command of the pages for users is run, in order, in a folder of its own: blocks ```sh are run line by line (`# exit N`: with that
code), blocks ```cinch NAME and ```python NAME are files. In docs/tasks.md a section has as many commands as its heading says."""
import os
import re
import shutil
import subprocess

import programs

ROOT = programs.HERE.parent.parent
verdicts = programs.Verdicts()


def blocks(page):
    """(kind, name, text, heading) of the fenced blocks of a page."""
    heading, found = "", []
    for part in re.finditer(r"^## ([^\n]+)$|^```(\w+) ?([^\s`]*)\n(.*?)^```$", page, re.M | re.S):
        if part[1]:
            heading = part[1]
        else:
            found.append((part[2], part[3], part[4], heading))
    return found


def run(name, page):
    folder = programs.FOLDER / name
    folder.mkdir()
    (folder / "examples").symlink_to(ROOT / "examples")
    bin_ = folder / "bin"
    bin_.mkdir()
    (bin_ / "cinch").symlink_to(programs.CINCH)
    (bin_ / "python3").symlink_to("/usr/bin/python3")
    environment = dict(os.environ, PATH="%s:%s" % (bin_, os.environ["PATH"]))
    for kind, file, text, heading in blocks(page.read_text()):
        if file:
            (folder / file).write_text(text)
            if kind == "cinch":
                formatted = subprocess.run([programs.CINCH, "fmt", "--check", folder / file]).returncode == 0
                verdicts.expect(formatted, "%s: %s is not formatted" % (name, file))
            continue
        if kind != "sh":
            continue
        commands = text.splitlines()
        promised = re.search(r"\((\d+) commands?\)", heading)
        if promised:
            verdicts.expect(len(commands) == int(promised[1]), "%s: `%s` has %d commands" % (name, heading, len(commands)))
        for command in commands:
            exit_ = re.search(r"# exit (\d+)$", command)
            done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  stdin=subprocess.DEVNULL, text=True, errors="replace", timeout=300)
            wanted = int(exit_[1]) if exit_ else 0
            verdicts.expect(done.returncode == wanted, "%s: %s\nexit %d\n%s" % (name, command, done.returncode, done.stdout[-1500:]))
    return folder


def main():
    for line in re.findall(r"\]\(([\w.-]*(?:/|\.md)[\w/.-]*)\)", "".join((ROOT / "docs" / page).read_text() for page in os.listdir(ROOT / "docs") if page.endswith(".md"))):
        verdicts.expect((ROOT / "docs" / line).exists(), "a link to %s, which is not there" % line)
    shutil.rmtree(run("readme", ROOT / "README.md"))
    shutil.rmtree(run("language", ROOT / "compiler/frontend/language.md"))
    shutil.rmtree(run("tutorial", ROOT / "docs/tutorial.md"))
    folder = run("patterns", ROOT / "docs/patterns.md")
    verdicts.expect((folder / "out-gan/predict/ring/sample.npy").exists(), "the patterns' files")
    shutil.rmtree(folder)
    folder = run("tasks", ROOT / "docs/tasks.md")
    verdicts.expect((folder / "page.html").exists() and (folder / "out/final.npz").exists(), "the tasks' files")


verdicts.run(main)
