"""A notebook as one HTML file that needs no network: equations as MathML, figures inside."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

MATH = re.compile(r"\$\$(?P<block>.+?)\$\$|\$(?P<inline>[^$\n]+?)\$", re.DOTALL)
TEMPLATE = Path(__file__).resolve().parent / "page.html.j2"
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def render_html(notebook: dict[str, Any]) -> str:
    """Return the notebook as a self-contained page; markup in texts and outputs is escaped, only ours is kept."""
    from jinja2 import Environment

    blocks = []
    for cell in notebook["cells"]:
        source = _joined(cell["source"])
        if cell["cell_type"] == "markdown":
            blocks.append(markdown(source))
            continue
        blocks.append(f'<pre class="code"><code>{html.escape(source)}</code></pre>')
        blocks += [block for output in cell["outputs"] for block in _output(output)]
    template = Environment(autoescape=False).from_string(TEMPLATE.read_text(encoding="utf-8"))
    first = _joined(notebook["cells"][0]["source"]).splitlines()[0].lstrip("# ")
    return template.render(title=html.escape(first), blocks=blocks)


def markdown(text: str) -> str:
    """Return Markdown with mathematics in dollars as HTML with MathML; raw HTML in the text is escaped."""
    from latex2mathml.converter import convert
    from markdown_it import MarkdownIt

    equations: list[str] = []

    def keep(match: re.Match[str]) -> str:
        block = match["block"] is not None
        made = convert((match["block"] or match["inline"]).strip(), display="block" if block else "inline")
        equations.append(f'<div class="equation">{made}</div>' if block else made)
        return f"MATH{len(equations) - 1}HTAM"

    rendered = str(MarkdownIt("commonmark", {"html": False}).enable("table").render(MATH.sub(keep, text)))
    rendered = re.sub(r"<p>(MATH\d+HTAM)</p>", r"\1", rendered)
    return re.sub(r"MATH(\d+)HTAM", lambda match: equations[int(match[1])], rendered)


def _output(output: dict[str, Any]) -> list[str]:
    """Return an output as blocks: its picture if it has one, else its text."""
    data = output.get("data", {})
    if "image/png" in data:
        return [f'<img alt="figure" src="data:image/png;base64,{_joined(data["image/png"]).strip()}">']
    text = _joined(output.get("text", data.get("text/plain", "")))
    return [f'<pre class="output">{html.escape(ANSI.sub("", text))}</pre>'] if text.strip() else []


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
