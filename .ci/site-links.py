"""Checks the links between the pages of a site: site-links.py FOLDER"""

import html.parser
import pathlib
import sys
import urllib.parse

root = pathlib.Path(sys.argv[1]).resolve()


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids.update(filter(None, [attributes.get("id"), attributes.get("name")]))
        link = attributes.get("href") if tag == "a" else attributes.get("src")
        if link:
            self.links.append(link)


pages = {path: Page(path.read_text()) for path in root.rglob("*.html")}
pages = {path: page for path, page in pages.items() if path.name not in ("print.html", "toc.html", "404.html")}
wrong = []
count = 0
for path, page in pages.items():
    for link in page.links:
        parts = urllib.parse.urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        count += 1
        target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
        if target.is_dir():
            target = target / "index.html"
        if not target.exists():
            wrong.append(f"{path.relative_to(root)}: {link}: no such page")
        elif parts.fragment and target in pages and parts.fragment not in pages[target].ids:
            wrong.append(f"{path.relative_to(root)}: {link}: no such heading")
print("\n".join(sorted(set(wrong))) or f"{count} links of {len(pages)} pages lead somewhere")
sys.exit(bool(wrong))
