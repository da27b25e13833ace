#!/usr/bin/env python3
"""Adds to a copy of the tree what a folder here holds, and says how many places that touches.

    python3 add.py ADDITION TREE

Files of ADDITION in folders are new files of TREE; ADDITION/lines is a list of what is put into files that there are,
separated by empty lines that a file's name follows:

    ir/op_list.inc
    after GRAVEN_OP(kSquare)
    GRAVEN_OP(kSquareplus)

A line of the file, or its beginning where the text goes before it, says the place; there must be one of it.
"""
import pathlib
import re
import shutil
import sys


def insertions(text):
    """(file, "before" or "after", the line there, the text to put in)"""
    blocks = re.split(r"\n\n(?=[\w/.]+\.\w+\n(?:before|after) )", text.rstrip("\n"))
    for block in blocks:
        name, place, added = block.split("\n", 2)
        where, _, anchor = place.partition(" ")
        yield name, where, anchor, added.split("\n")


def insert(path, where, anchor, added):
    lines = path.read_text().split("\n")
    found = [i for i, line in enumerate(lines) if line == anchor or (where == "before" and line.startswith(anchor))]
    if len(found) != 1:
        sys.exit(f"add.py: {path}: expected one line '{anchor}', found {len(found)}")
    at = found[0] + (where == "after")
    lines[at:at] = added + ([""] if where == "before" and len(added) > 1 else [])
    path.write_text("\n".join(lines))


def main():
    addition, tree = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    touched = []
    for file in sorted(p for p in addition.rglob("*") if p.is_file() and p.parent != addition):
        place = file.relative_to(addition)
        if (tree / place).exists():
            sys.exit(f"add.py: {place} is there already")
        (tree / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, tree / place)
        touched.append(str(place))
    for name, where, anchor, added in insertions((addition / "lines").read_text()):
        insert(tree / name, where, anchor, added)
        if name not in touched:
            touched.append(name)
    places = [place for place in touched if not place.startswith("docs/")]
    pages = "".join(f", and the page {page}" for page in touched if page.startswith("docs/"))
    print(f"{addition.name}: {len(places)} places: {', '.join(places)}{pages}")
    limit = {"elementwise": 3, "kernel": 8, "optimizer": 3, "pass": 3}[addition.name]
    if len(places) > limit:
        sys.exit(f"add.py: {addition.name}: expected {limit} places at most, found {len(places)}")


if __name__ == "__main__":
    main()
