#!/usr/bin/env python3
"""The parser against the grammar: same verdict on every token stream.  usage: grammar_verdicts.py [build/bin/parse_tokens]

The page compiler/frontend/grammar.ebnf is read as it stands, turned into a table-driven LL(2) parser, and asked about every program and
about 20,000 token streams with one token dropped, doubled, swapped or replaced. compiler/frontend's parser (through
parse_tokens) must agree, token by token in the lexer too: on the programs and on texts with a few characters changed. With
`pip install lark` the LALR(1) version, language/grammar.lark, is a third judge.
"""
import glob, itertools, os, random, re, subprocess, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LANGUAGE = os.path.join(HERE, "language")
STREAMS, TEXTS, SEED = 20000, 6000, 1

SOFT = "dim const data reversible layer model train on seed plan batch scale from below except builtin names normalize at".split()
HARD = ("if then else and or not true false where sum mean max min prod any all scan "
        "param state use update return metric predict repeat as").split()
PUNCT = {"(": "LPAR", ")": "RPAR", "[": "LSQB", "]": "RSQB", "{": "LBRACE", "}": "RBRACE", ",": "COMMA", ":": "COLON",
         "?": "QUERY", "~": "TILDE", "@": "MATMUL", "'": "PRIME", "=": "ASSIGN", "->": "ARROW", "..": "DOTS", "==": "EQ",
         "!=": "NE", "<": "LT", "<=": "LE", ">": "GT", ">=": "GE", "+": "PLUS", "-": "MINUS", "*": "STAR", "/": "SLASH",
         "^": "CARET"}
ENDERS = {"NAME_", "NUMBER", "STRING", "TRUE", "FALSE", "RPAR", "RSQB", "RBRACE", "PRIME"} | {w.upper() for w in SOFT}
GOES_ON = set("ARROW THEN ELSE AND OR EQ NE LT LE GT GE PLUS MINUS STAR SLASH CARET".split())
TOKEN = re.compile(r"""(?P<blank>[ \t\r]+|//[^\n]*)|(?P<nl>\n)|(?P<semi>;)
  |(?P<number>[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?(KiB|MiB|GiB|TiB|kB|MB|GB|TB|B)?(?![A-Za-z0-9_]))
  |(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<string>"(\\["\\t]|[^"\\\n])*")
  |(?P<punct>->|\.\.|==|!=|<=|>=|[()\[\]{},:?~@'=<>+\-*/^])""", re.X)


def lex(text):
    """Token kinds of a text, or None if a character is bad."""
    out, depth, pos, pending = [], 0, 0, False

    def line_end():
        nonlocal pending
        pending = pending or (depth == 0 and bool(out) and out[-1] in ENDERS)

    def put(kind):
        nonlocal pending
        if pending and kind not in GOES_ON:
            out.append("NL")
        pending = False
        out.append(kind)

    while pos < len(text):
        m = TOKEN.match(text, pos)
        if not m:
            return None
        s, pos = m.group(), m.end()
        if m.group("nl"):
            line_end()
        elif m.group("semi"):
            line_end()
            if pending:
                out.append("NL")
                pending = False
        elif m.group("number"):
            put("NUMBER")
        elif m.group("string"):
            put("STRING")
        elif m.group("name"):
            put(s.upper() if s in SOFT or s in HARD else "NAME_")
        elif m.group("punct"):
            depth += s in "(["
            depth = max(0, depth - (s in ")]"))
            if s == "}":
                line_end()
            put(PUNCT[s])
    line_end()
    return out + ["NL"] * pending


END = "$"


class Ebnf:
    """The page as a strong LL(2) grammar: predict sets of two tokens, then a stack machine."""

    def __init__(self, path):
        text = re.sub(r"\(\*.*?\*\)", " ", open(path).read(), flags=re.S)
        self.words, self.at = re.findall(r'"[^"]*"|[A-Za-z]+|[=;|{}\[\]()]', text), 0
        self.rules, self.fresh, self.start = {}, itertools.count(), None
        while self.at < len(self.words):
            name = self.next()
            self.start = self.start or name
            self.want("=")
            self.rules[name] = self.alternatives(name)
            self.want(";")
        self.rules["NAME"] = [["NAME_"]] + [[w.upper()] for w in SOFT]
        self.clashes = self.analyse()

    def next(self):
        self.at += 1
        return self.words[self.at - 1]

    def peek(self):
        return self.words[self.at] if self.at < len(self.words) else None

    def want(self, word):
        got = self.next()
        if got != word:
            raise SystemExit(f"grammar.ebnf: expected {word}, got {got} near {self.words[self.at - 4:self.at + 3]}")

    def alternatives(self, name):
        out = [self.sequence(name)]
        while self.peek() == "|":
            self.next()
            out.append(self.sequence(name))
        return out

    def sequence(self, name):
        out = []
        while self.peek() not in ("|", ")", "]", "}", ";", None):
            word = self.next()
            if word in "{[(":
                inner = self.alternatives(name)
                self.want({"{": "}", "[": "]", "(": ")"}[word])
                made = f"%{name}{next(self.fresh)}"
                self.rules[made] = ([b + [made] for b in inner] + [[]] if word == "{" else
                                    inner + [[]] if word == "[" else inner)
                out.append(made)
            elif word[0] == '"':
                out.append(PUNCT.get(word[1:-1], word[1:-1].upper()))
            else:
                out.append(word)
        return out

    @staticmethod
    def cat(left, right):
        return {(a + b)[:2] for a in left for b in (right if len(a) < 2 else [()])}

    def first_of(self, sequence):
        result = {()}
        for s in sequence:
            if all(len(x) == 2 for x in result):
                break
            result = self.cat(result, self.first[s] if s in self.rules else {(s,)})
        return result

    def analyse(self):
        self.first = {n: set() for n in self.rules}
        self.follow = {n: set() for n in self.rules}
        self.follow[self.start] = {(END, END)}
        changed = True
        while changed:
            changed = False
            for n, alternatives in self.rules.items():
                for a in alternatives:
                    found = self.first_of(a)
                    if not found <= self.first[n]:
                        self.first[n] |= found
                        changed = True
        changed = True
        while changed:
            changed = False
            for n, alternatives in self.rules.items():
                for a in alternatives:
                    for i, s in enumerate(a):
                        if s in self.rules:
                            found = self.cat(self.first_of(a[i + 1:]), self.follow[n])
                            if not found <= self.follow[s]:
                                self.follow[s] |= found
                                changed = True
        self.table, clashes = {}, []
        for n, alternatives in self.rules.items():
            for a in alternatives:
                for pair in self.cat(self.first_of(a), self.follow[n]):
                    if self.table.setdefault((n, pair), a) is not a:
                        clashes.append((n, pair))
        return clashes

    def accepts(self, kinds):
        kinds, i, stack = kinds + [END, END], 0, [self.start]
        while stack:
            s = stack.pop()
            if s in self.rules:
                a = self.table.get((s, (kinds[i], kinds[i + 1])))
                if a is None:
                    return False
                stack.extend(reversed(a))
            elif s == kinds[i]:
                i += 1
            else:
                return False
        return kinds[i] == END


def lark_judge():
    try:
        from lark import Lark, Token
        from lark.exceptions import UnexpectedToken
        from lark.lexer import Lexer
    except ImportError:
        return None

    class Kinds(Lexer):
        def __init__(self, conf):
            pass

        def lex(self, kinds):
            yield from (Token(k, k) for k in kinds)

    parser = Lark(open(os.path.join(LANGUAGE, "grammar.lark")).read(), parser="lalr", lexer=Kinds, strict=True)

    def accepts(kinds):
        try:
            parser.parse(kinds)
            return True
        except UnexpectedToken:
            return False
    return accepts


def mutate_stream(rnd, stream, kinds):
    s, k, how = list(stream), rnd.randrange(len(stream)), rnd.randrange(4)
    if how == 0:
        del s[k]
    elif how == 1:
        s.insert(k, s[k])
    elif how == 2:
        s[k] = rnd.choice(kinds)
    else:
        j = rnd.randrange(len(s))
        s[k], s[j] = s[j], s[k]
    return s


def mutate_text(rnd, text):
    lines = text.split("\n")
    at = rnd.randrange(len(lines))
    piece = "\n".join(lines[at:at + rnd.randrange(1, 12)])
    for _ in range(rnd.randrange(1, 4)):
        k = rnd.randrange(len(piece) + 1)
        new = rnd.choice(["", "\n", "\n\n", ";", " ", ".", "..", "1", "1e5", "2GiB", "e", "x", '"', "\\", "//", "(", ")", "[",
                          "]", "{", "}", "-", ">", "=", "then", "@", "'", "^", "#", "\t", "and", "é", "1.5"])
        piece = piece[:k] + new + piece[k + rnd.randrange(3):]
    return piece


def escape(text):
    return "".join({"\n": "\\n", "\\": "\\\\"}.get(c, c if 32 <= ord(c) < 127 else "".join(f"\\x{b:02x}" for b in c.encode()))
                   for c in text)


def ask(tool, mode, lines):
    run = subprocess.run([tool, mode], input="".join(line + "\n" for line in lines), capture_output=True, text=True, timeout=300)
    answers = run.stdout.split("\n")[:-1]
    if run.returncode != 0 or len(answers) != len(lines):
        raise SystemExit(f"{tool} {mode}: exit {run.returncode}, {len(answers)} answers to {len(lines)} lines\n{run.stderr[:500]}")
    return answers


def main():
    tool = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "bin", "parse_tokens")
    began = time.time()
    failed = 0

    def fail(message):
        nonlocal failed
        failed += 1
        if failed <= 10:
            print("failed:", message)

    grammar, third = Ebnf(os.path.join(ROOT, "compiler", "frontend", "grammar.ebnf")), lark_judge()
    for n, pair in grammar.clashes:
        fail(f"grammar.ebnf: {n} is not LL(2) at {pair}")
    paths = sorted(glob.glob(os.path.join(LANGUAGE, "**", "*.cinch"), recursive=True))
    paths.append(os.path.join(ROOT, "compiler", "frontend", "prelude.cinch"))
    texts = [open(p).read() for p in paths]
    streams = [lex(t) for t in texts]
    for path, stream in zip(paths, streams):
        if stream is None or not grammar.accepts(stream):
            fail(f"the grammar refuses {path}")
    run = subprocess.run([tool] + paths, capture_output=True, text=True)
    if run.returncode != 0:
        fail("the parser refuses a program:\n" + run.stdout)

    items = []  # one item at a time is a file too
    for stream in streams:
        depth, item = 0, []
        for kind in stream:
            item.append(kind)
            depth += (kind == "LBRACE") - (kind == "RBRACE")
            if kind == "NL" and depth == 0:
                items.append(item)
                item = []
    rnd, kinds = random.Random(SEED), [k for s in streams for k in s]
    mutants = [mutate_stream(rnd, rnd.choice(items), kinds) for _ in range(STREAMS)]
    accepted = 0
    for mutant, answer in zip(mutants, ask(tool, "--parse", [" ".join(m) for m in mutants])):
        expected = grammar.accepts(mutant)
        accepted += expected
        if (answer == "1") != expected:
            fail(f"the grammar {'accepts' if expected else 'refuses'}, the parser does not: {' '.join(mutant)}")
        if third and third(mutant) != expected:
            fail(f"grammar.lark and grammar.ebnf differ: {' '.join(mutant)}")

    changed = texts + [mutate_text(rnd, rnd.choice(texts)) for _ in range(TEXTS)]
    bad = 0
    for text, answer in zip(changed, ask(tool, "--lex", [escape(t) for t in changed])):
        expected = lex(text)
        bad += expected is None
        if answer != ("BAD" if expected is None else " ".join(expected)):
            fail(f"tokens of {text!r}:\n  expected {'BAD' if expected is None else ' '.join(expected)}\n  got      {answer}")

    judges = "EBNF page and lark" if third else "EBNF page (lark is not installed)"
    print(f"{len(paths)} programs; {len(mutants)} token streams, {accepted} accepted; {len(changed)} texts, {bad} with bad "
          f"characters; judged by the {judges}; {time.time() - began:.0f} s")
    print(f"{len(paths) + len(mutants) + len(changed) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
