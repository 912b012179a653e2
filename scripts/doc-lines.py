#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws doc lines of public items, to be read as a reader of another codebase reads them.

    scripts/doc-lines.py [--seed 1] [--count 100]

Prints file, line, item and the beginning of its text. The same seed draws the same lines of the same sources."""
import argparse
import pathlib
import random
import re

ITEM = re.compile(r"\s*(?:pub(?:\(\w+\))? )(?:unsafe |const |async )*(fn|struct|enum|trait|type|const|static|mod|union)? ?(\w+)")


def lines(root):
    """Each public item with a doc comment: file, line, item, first paragraph."""
    for path in sorted(root.glob("crates/*/src/**/*.rs")):
        if "test" in path.name or "tests" in path.parts:
            continue
        doc, begin = [], 0
        for number, line in enumerate(path.read_text().splitlines(), 1):
            text = line.strip()
            if text.startswith("///"):
                begin = begin if doc else number
                doc.append(text[3:].strip())
            elif text.startswith(("#[", "#![")) or (doc and text.endswith(")]")):
                continue
            else:
                item = ITEM.match(line) if line.lstrip().startswith("pub ") else None
                if doc and item:
                    first = " ".join(doc).split("  ")[0]
                    yield path.relative_to(root), begin, f"{item[1] or 'field'} {item[2]}", first
                doc = []


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--count", type=int, default=100)
    options = arguments.parse_args()
    root = pathlib.Path(__file__).resolve().parent.parent
    found = list(lines(root))
    drawn = sorted(random.Random(options.seed).sample(found, options.count))
    print(f"{options.count} of {len(found)} public doc lines, seed {options.seed}")
    for path, number, item, first in drawn:
        print(f"{path}:{number}: {item}\n    {first[:240]}")


if __name__ == "__main__":
    main()
