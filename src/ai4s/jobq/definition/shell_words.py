"""Where in a shell command a quoted word may be put.

A value that was quoted for the shell is safe between words and beside them, and nowhere else: inside ``"…"`` a ``'$(x)'`` is
run, a here-document takes quotes for text, and a backtick in the value ends a `` `…` ``. This walks over a command and
knows what is open. It follows bash's rules as far as they decide that; ``case`` patterns inside ``$(…)`` are beyond it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ai4s.jobq.definition.document import shown
from ai4s.jobq.definition.templates import Embedded, Piece, ReferenceProblem

_PLACES = {
    "'": "inside '…'",
    "$'": "inside $'…'",
    '"': 'inside "…"',
    "`": "inside `…`",
    "{": "inside ${…}",
    "((": "inside an arithmetic expression",
    "[": "inside an arithmetic expression",
    "<<": "in a here-document",
    "#": "in a comment",
}
_HERE_DOCUMENT = re.compile(r"""<<(-?)[ \t]*((?:\\.|'[^'\n]*'|"[^"\n]*"|[^\s;&|<>()'"\\])+)""")
_QUOTING = re.compile(r"""\\(.)|['"]""")
_BEFORE_COMMENT = frozenset(" \t\n;&|()<>")
_NEXT = {  # what ends or opens something there, or takes the special meaning from the next character
    "'": re.compile("'"),
    "$'": re.compile(r"\\.?|'", re.DOTALL),
    "`": re.compile(r"\\.?|`", re.DOTALL),
    '"': re.compile(r'\\.?|\$\(\(|\$\(|\$\{|`|"', re.DOTALL),
    "{": re.compile(r'\\.?|\$\(\(|\$\(|\$\{|`|"|\}', re.DOTALL),
    "((": re.compile(r"\(|\)"),
    "[": re.compile(r"\]"),
    "#": re.compile(r"(?=\n)"),
}
_NEXT_OF_ALL = re.compile(r"""\\.?|\$\(\(|\$\(|\$\{|\$'|\$\[|\(\(|<<<|<<|[`"'()\n#]""", re.DOTALL)
_OPENS = {"$[": "[", "$(": "(", "(": "(", "${": "{", "$((": "((", "((": "((", "$'": "$'", "'": "'", '"': '"', "`": "`"}


def obstacles(pieces: tuple[Piece, ...]) -> dict[int, str]:
    """Why references of a command must not stand where they stand, as a place, by the index of their piece."""
    walk = ShellWalk()
    found: dict[int, str] = {}
    for index, piece in enumerate(pieces):
        if isinstance(piece, str):
            walk.walk(piece)
            continue
        obstacle = None if piece.is_raw() else walk.obstacle()
        if obstacle is not None:
            found[index] = obstacle
        walk.put_value()
    return found


def quoted_already(embedded: Embedded, obstacle: str) -> ReferenceProblem:
    """The problem of a reference that stands there."""
    return ReferenceProblem(
        f"the reference {shown(f'${{{{ {embedded.text} }}}}')} stands {obstacle}",
        hint='Its value is quoted already: take it out of there, pass it in env and write "$NAME", or use raw(…).',
    )


@dataclass(slots=True)
class ShellWalk:
    """What is open after the text and the values walked over so far."""

    _open: list[str] = field(default_factory=list)  # keys of _PLACES, and "(" for commands in parentheses
    _documents: list[tuple[str, bool]] = field(default_factory=list)  # end word, whether tabs before it are ignored
    _line: str = ""  # of the here-document, as far as it goes
    _last: str = "\n"  # the character before
    _after_backslash: bool = False

    def obstacle(self) -> str | None:
        """Why a quoted word must not be put here, as an expression of place, or None."""
        if self._after_backslash:
            return "after a backslash"
        in_command = False  # a $(…) inside "…" begins afresh
        for mark in reversed(self._open):
            if mark == "(":
                in_command = True
            elif not (in_command and mark in ('"', "{")):
                return _PLACES[mark]
        return None

    def put_value(self) -> None:
        """Walk over a value, which opens and ends nothing."""
        self._last = "x"
        self._line += "x"
        self._after_backslash = False

    def walk(self, text: str) -> None:
        """Walk over a piece of the command."""
        at = 0
        while at < len(text):
            place = self._open[-1] if self._open else "("
            at = self._document(text, at) if place == "<<" else self._find(text, at, place)

    def _find(self, text: str, at: int, place: str) -> int:
        found = _NEXT.get(place, _NEXT_OF_ALL).search(text, at)
        if found is None:
            self._last = text[-1]
            return len(text)
        before = text[found.start() - 1] if found.start() > at else self._last
        mark = found.group()
        end = found.end()
        if mark == "\\":
            self._after_backslash = True
        elif place in _NEXT:
            self._turn(mark, place)
        else:
            end = self._command_mark(mark, text, found.start(), before)
        self._last = text[end - 1] if end else before
        return end

    def _turn(self, mark: str, place: str) -> None:
        """A mark inside something that is open: it ends it, or opens something in it."""
        ends = {"$'": "'", "{": "}", "((": ")", "[": "]", "#": ""}.get(place, place)
        if mark == ends:
            self._open.pop()
        elif place == "((":
            self._open.append("((")
        else:
            self._push(mark)

    def _command_mark(self, mark: str, text: str, at: int, before: str) -> int:
        """A mark between the words of a command; answers where to go on."""
        if mark == ")":
            if self._open:
                self._open.pop()
        elif mark == "#":
            if before in _BEFORE_COMMENT:
                self._open.append("#")
        elif mark == "<<":
            document = _HERE_DOCUMENT.match(text, at)
            if document:
                word = _QUOTING.sub(lambda quoting: quoting[1] or "", document[2])
                self._documents.append((word, bool(document[1])))
                return document.end()
        elif mark == "\n":
            if self._documents:
                self._open.append("<<")
                self._line = ""
        else:
            self._push(mark)
        return at + len(mark)

    def _push(self, mark: str) -> None:
        if mark in ("$((", "(("):
            self._open.append("((")  # two parentheses have to close
        if mark in _OPENS:
            self._open.append(_OPENS[mark])

    def _document(self, text: str, at: int) -> int:
        """A line of a here-document, or the beginning of one."""
        end = text.find("\n", at)
        self._line += text[at:] if end < 0 else text[at:end]
        if end < 0:
            return len(text)
        word, ignores_tabs = self._documents[0]
        if (self._line.lstrip("\t") if ignores_tabs else self._line) == word:
            self._documents.pop(0)
            if not self._documents:
                self._open.pop()
        self._line = ""
        self._last = "\n"
        return end + 1
