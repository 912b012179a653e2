#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the links and pictures of the built book, and leads links out of the book to the repository's files.

    scripts/book-links.py docs docs/book

mdbook turns every link to `x.md` into one to `x.html`, also where the file is no page of the book (`../SECURITY.md`).
Such links are rewritten to the Markdown file, relative to the page. A link to a missing page, anchor or file is
printed; then the exit code is 1."""
import html.parser
import os
import pathlib
import re
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    """Anchors and links of a page."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors |= {attributes[key] for key in ("id", "name") if attributes.get(key)}
        link = attributes.get({"a": "href", "img": "src"}.get(tag))
        if link and not re.match(r"[a-z]+:|//", link):
            self.links.append(link)


def target_of(page, link):
    """The file and the anchor that a link leads to."""
    path, _, anchor = link.partition("#")
    path = urllib.parse.unquote(path.partition("?")[0])
    return pathlib.Path(os.path.normpath(page.parent / path)) if path else page, urllib.parse.unquote(anchor)


def outside(source, book, page, target):
    """The link to the repository's file that a target outside of the book stands for, if the file exists."""
    written = source / page.relative_to(book).parent
    file = pathlib.Path(os.path.normpath(written / os.path.relpath(target, page.parent)))
    for candidate in (file, file.with_suffix(".md")):
        if candidate.exists():
            return os.path.relpath(candidate, page.parent)
    return None


def main():
    source, book = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    pages = {file: Page(file.read_text()) for file in book.rglob("*.html")}
    # 404.html has links from the root of a site, toc.html is a frame of every page.
    checked = {file: page for file, page in pages.items() if file.name not in ("404.html", "toc.html")}
    links = faults = 0
    for file, page in sorted(checked.items()):
        text = file.read_text()
        for link in page.links:
            links += 1
            target, anchor = target_of(file, link)
            fault = None
            if target.exists():
                if anchor and target in pages and anchor not in pages[target].anchors:
                    fault = "no such anchor"
            elif (led := outside(source, book, file, target)) is None:
                fault = "no such page or file"
            else:
                new = led + (f"#{anchor}" if anchor else "")
                text = text.replace(f'"{link}"', f'"{new}"')
            if fault:
                faults += 1
                print(f"{file.relative_to(book)}: {link}: {fault}")
        file.write_text(text)
    print(f"book: {links} links of {len(checked)} pages, {faults} broken")
    return 1 if faults or not links else 0


if __name__ == "__main__":
    sys.exit(main())
