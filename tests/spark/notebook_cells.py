"""Runs the code cells of a notebook in order, as Jupyter shows them, without Jupyter.

``python tests/spark/notebook_cells.py NOTEBOOK`` runs it and writes what every cell gave into it.
"""

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

Cell = dict[str, Any]


def run_notebook(path: Path) -> list[list[Cell]]:
    """The outputs of every code cell.  Raises what a cell raises."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    return [_run("".join(cell["source"]), namespace) for cell in code_cells(load(path))]


def load(path: Path) -> Cell:
    notebook: Cell = json.loads(path.read_text())
    return notebook


def code_cells(notebook: Cell) -> list[Cell]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _run(source: str, namespace: dict[str, Any]) -> list[Cell]:
    """What a cell prints, and the value of its last line."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)
    outputs: list[Cell] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    if value is not None:
        shown = {"text/plain": [repr(value)]}
        if hasattr(value, "_repr_html_") and (markup := value._repr_html_()):
            shown = {"text/html": [markup]} | shown
        outputs.append({"data": shown, "metadata": {}, "output_type": "display_data"})
    return outputs


def main(path: Path) -> None:
    notebook = load(path)
    for cell, outputs in zip(code_cells(notebook), run_notebook(path), strict=True):
        cell["outputs"] = outputs
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
