#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the drawings of the book: docs/drawings/NAME.txt becomes docs/drawings/NAME.svg.

    scripts/drawings.py            write all drawings
    scripts/drawings.py --check    compare the committed drawings with their sources; exit status 1 where one differs

A source has one statement on each line; `#` begins a comment. Lengths are pixels, texts are quoted, `|` ends a line of text.

    title "..."                                 text of the element <title>
    description "..."                           text of the element <desc>
    size WIDTH HEIGHT
    group X Y W H "label"                       a frame around boxes
    box NAME X Y W H "text" [KIND]              KIND: plain, strong, kernel, store, question, good, bad
    note X Y "text" [start|middle|end]
    arrow FROM TO ["label"] [OPTION...]         FROM and TO: NAME.SIDE or NAME.SIDE+OFFSET, SIDE: l r t b
                                                OPTION: dashed, both, via=X,Y (again for each corner), at=X,Y (the label)

OFFSET moves the end of an arrow along its side, away from the middle. The script needs nothing but Python. It refuses text
that does not fit its box and statements that it does not know. The SVG follows the reader's choice of light or dark.
"""

import re
import shlex
import sys
from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "drawings"
SIZE, LEADING, LETTER = 13, 17, 6.9
KINDS = ("plain", "strong", "kernel", "store", "question", "good", "bad")

# Colours of light and dark: background, text, labels and lines, then fill and border of each kind of box.
COLOURS = {
    "light": {
        "back": "#ffffff", "text": "#1b1f24", "soft": "#57606a",
        "plain": ("#f6f8fa", "#57606a"), "question": ("#ffffff", "#57606a"), "strong": ("#dbe9fb", "#2463a8"),
        "kernel": ("#fdf0d5", "#9a6700"), "store": ("#ece7f7", "#6a4fb3"), "good": ("#dcf3e1", "#1a7f37"), "bad": ("#fbe0de", "#b3261e"),
    },
    "dark": {
        "back": "#15191f", "text": "#e6edf3", "soft": "#a5b0bb",
        "plain": ("#222932", "#a5b0bb"), "question": ("#15191f", "#a5b0bb"), "strong": ("#173656", "#6cabf0"),
        "kernel": ("#40310f", "#dba63a"), "store": ("#33284f", "#b09af0"), "good": ("#143a20", "#56c271"), "bad": ("#4a1c1a", "#f2837b"),
    },
}

SHAPES = """text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
.group { fill: none; stroke-dasharray: 2 4; }
.caption { font-weight: 600; }
.arrow { fill: none; stroke-width: 1.5; }
.dashed { stroke-dasharray: 6 4; }
.box { stroke-width: 1.3; }"""


def colours(of):
    """The rules of one choice of colours."""
    back, text, soft = of["back"], of["text"], of["soft"]
    yield f".back {{ fill: {back}; }} .text {{ fill: {text}; }} .label, .caption {{ fill: {soft}; }}"
    yield f".group, .arrow {{ stroke: {soft}; }} .head {{ fill: {soft}; }}"
    for kind in KINDS:
        yield f".{kind} {{ fill: {of[kind][0]}; stroke: {of[kind][1]}; }}"


def style():
    """The style sheet of all drawings."""
    light, dark = ("\n".join(colours(COLOURS[name])) for name in ("light", "dark"))
    return f"{SHAPES}\n{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"


class Fault(Exception):
    """A statement that cannot be drawn."""


def number(value):
    """The shortest text of a number."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def lines_of(text, x, y, style, anchor="middle"):
    """The lines of a text, centred on y."""
    parts = text.split("|")
    first = y - (len(parts) - 1) * LEADING / 2 + SIZE * 0.36
    for index, part in enumerate(parts):
        place = f'x="{number(x)}" y="{number(first + index * LEADING)}" text-anchor="{anchor}"'
        yield f'<text class="{style}" {place}>{escape(part, quote=False)}</text>'


class Drawing:
    """A source that was read."""

    def __init__(self, name, source):
        self.name, self.size = name, None
        self.texts = {"title": "", "description": ""}
        self.boxes, self.below, self.above = {}, [], []
        arrows = []
        for place, line in enumerate(source.splitlines(), 1):
            try:
                words = shlex.split(line, comments=True)
                if words and words[0] == "arrow":
                    arrows.append((place, words[1:]))
                elif words:
                    self.statement(words)
            except (Fault, ValueError, IndexError) as error:
                raise Fault(f"{name}.txt:{place}: {error}") from error
        for place, words in arrows:
            try:
                self.arrow(words)
            except (Fault, ValueError, IndexError, KeyError) as error:
                raise Fault(f"{name}.txt:{place}: {error!r}") from error
        if not self.size or not all(self.texts.values()):
            raise Fault(f"{name}.txt: size, title or description is missing")

    def statement(self, words):
        """All statements but arrows."""
        kind, rest = words[0], words[1:]
        if kind in self.texts:
            self.texts[kind] = rest[0]
        elif kind == "size":
            self.size = (int(rest[0]), int(rest[1]))
        elif kind == "group":
            x, y, w, h = map(int, rest[:4])
            self.below.append(f'<rect class="group" x="{x}" y="{y}" width="{w}" height="{h}" rx="10"/>')
            self.above.append(f'<rect class="back" x="{x + 8}" y="{y + 6}" width="{number(len(rest[4]) * LETTER * 1.07 + 8)}" height="{LEADING + 1}"/>')
            self.above.append(f'<text class="caption" x="{x + 12}" y="{y + 20}">{escape(rest[4], quote=False)}</text>')
        elif kind == "box":
            self.box(rest)
        elif kind == "note":
            anchor = rest[3] if len(rest) > 3 else "start"
            self.above.extend(lines_of(rest[2], int(rest[0]), int(rest[1]), "label", anchor))
        else:
            raise Fault(f"there is no statement `{kind}`")

    def box(self, rest):
        """A box with its text."""
        name, (x, y, w, h), text = rest[0], map(int, rest[1:5]), rest[5]
        kind = rest[6] if len(rest) > 6 else "plain"
        if kind not in KINDS:
            raise Fault(f"there is no kind `{kind}`")
        longest = max(text.split("|"), key=len)
        if len(longest) * LETTER > w - 8 or len(text.split("|")) * LEADING > h - 4:
            raise Fault(f"`{longest}` does not fit its box")
        self.boxes[name] = (x, y, w, h)
        corner = h // 2 if kind == "question" else 6
        self.below.append(f'<rect class="box {kind}" x="{x}" y="{y}" width="{w}" height="{h}" rx="{corner}"/>')
        self.above.extend(lines_of(text, x + w / 2, y + h / 2, "text"))

    def end(self, text):
        """Where an arrow begins or ends."""
        found = re.fullmatch(r"(\w+)\.([lrtb])([+-]\d+)?", text)
        if not found:
            raise Fault(f"`{text}` is no end of an arrow")
        x, y, w, h = self.boxes[found[1]]
        offset = int(found[3] or 0)
        return {
            "l": (x, y + h / 2 + offset),
            "r": (x + w, y + h / 2 + offset),
            "t": (x + w / 2 + offset, y),
            "b": (x + w / 2 + offset, y + h),
        }[found[2]]

    def arrow(self, words):
        """An arrow between two boxes."""
        points, label, style, at, both = [self.end(words[0])], None, "arrow", None, False
        last = self.end(words[1])
        for word in words[2:]:
            pair = word.partition("=")
            if word == "dashed":
                style = "arrow dashed"
            elif word == "both":
                both = True
            elif pair[0] == "via":
                points.append(tuple(map(float, pair[2].split(","))))
            elif pair[0] == "at":
                at = tuple(map(float, pair[2].split(",")))
            elif label is None:
                label = word
            else:
                raise Fault(f"`{word}` is no option of an arrow")
        points.append(last)
        path = "M" + " L".join(f"{number(x)} {number(y)}" for x, y in points)
        ends = ' marker-end="url(#head)"' + (' marker-start="url(#head)"' if both else "")
        self.below.append(f'<path class="{style}" d="{path}"{ends}/>')
        if label:
            if at is None:
                pieces = list(zip(points, points[1:]))
                (ax, ay), (bx, by) = max(pieces, key=lambda p: abs(p[0][0] - p[1][0]) + abs(p[0][1] - p[1][1]))
                at = ((ax + bx) / 2, (ay + by) / 2)
            parts = label.split("|")
            w, h = max(map(len, parts)) * LETTER + 4, len(parts) * LEADING
            place = f'x="{number(at[0] - w / 2)}" y="{number(at[1] - h / 2)}"'
            self.above.append(f'<rect class="back" {place} width="{number(w)}" height="{h}"/>')
            self.above.extend(lines_of(label, at[0], at[1], "label"))

    def svg(self):
        """The file's text."""
        width, height = self.size
        body = "\n".join(self.below + self.above)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">\n'
            f"<!-- Made of {self.name}.txt by scripts/drawings.py; do not edit. -->\n"
            f"<title>{escape(self.texts['title'])}</title>\n<desc>{escape(self.texts['description'])}</desc>\n"
            f"<style>\n{style()}\n</style>\n"
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto-start-reverse">'
            '<path class="head" d="M0 0.5 L10 5 L0 9.5 z"/></marker></defs>\n'
            f'<rect class="back" width="{width}" height="{height}" rx="12"/>\n{body}\n</svg>\n'
        )


def main():
    """Writes or compares all drawings."""
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    stale = []
    for source in sorted(FOLDER.glob("*.txt")):
        try:
            text = Drawing(source.stem, source.read_text(encoding="utf-8")).svg()
        except Fault as fault:
            sys.exit(f"drawings: {fault}")
        drawing = source.with_suffix(".svg")
        if sys.argv[1:]:
            if not drawing.exists() or drawing.read_text(encoding="utf-8") != text:
                stale.append(drawing.name)
        else:
            drawing.write_text(text, encoding="utf-8")
    if stale:
        sys.exit(f"drawings: {', '.join(stale)} differ from their sources; run scripts/drawings.py")


if __name__ == "__main__":
    main()
