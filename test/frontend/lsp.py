#!/usr/bin/python3
"""`cinch lsp`: a session with an editor, replayed: diagnostics while typing, hover, definition, completion, formatting, wrong messages. And the
grammar for editors: every program of the tree is tokenized by it, keywords and comments as the lexer has them."""
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CINCH = ROOT / "build" / "bin" / "cinch"
PROGRAM = """// Größe: ein 🙂 vor dem Code
dim B = 32 batch, I = 8, H = 2 * I, C = 4
data train = npy("x.npy", "y.npy") -> (x: f32[B, I], y: i32[B] below C)
layer mlp[H, O](x: f32[.., I]) -> f32[.., O] {
  use up = linear[H], down = linear[O]
  h = relu(up(x))
  return down(h)
}
model net(x: f32[B, I]) -> f32[B, C] { use m = mlp[H, C]; return m(x) }
train net on train seed 1 {
  logits = net(x)
  loss = mean[B] cross_entropy(logits, y)
  optimizer sgd(lr = 0.1); steps 5
}
"""
passed = failed = 0


def expect(good, what):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print("FAILED:", what)


class Editor:
    URI = "file:///home/me/net.cinch"

    def __init__(self):
        self.server = subprocess.Popen([CINCH, "lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.calls, self.published = 0, []

    def send(self, message):
        body = json.dumps(dict(message, jsonrpc="2.0")).encode()
        self.server.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.server.stdin.flush()

    def receive(self):
        length = 0
        while True:
            line = self.server.stdout.readline()
            if not line.strip():
                break
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return json.loads(self.server.stdout.read(length))

    def call(self, method, **params):
        self.calls += 1
        self.send(dict(id=self.calls, method=method, params=params))
        while True:
            answer = self.receive()
            if answer.get("id") == self.calls:
                return answer.get("result", answer.get("error"))
            self.published.append(answer)

    def notify(self, method, **params):
        self.send(dict(method=method, params=params))

    def diagnostics(self):
        answer = self.published.pop(0) if self.published else self.receive()
        expect(answer["method"] == "textDocument/publishDiagnostics", str(answer))
        return answer["params"]["diagnostics"]

    def at(self, method, text, piece, skip=0, **more):
        """A request about the place where `piece` begins in the text."""
        offset = text.index(piece) + skip
        line = text.count("\n", 0, offset)
        before = text[text.rfind("\n", 0, offset) + 1 : offset]
        position = dict(line=line, character=len(before.encode("utf-16-le")) // 2)
        return self.call(method, textDocument=dict(uri=self.URI), position=position, **more)


def session():
    editor = Editor()
    found = editor.call("initialize", processId=None, rootUri=None, capabilities={})
    offered = found["capabilities"]
    for what in ("hoverProvider", "definitionProvider", "documentFormattingProvider", "completionProvider"):
        expect(offered.get(what), "not offered: " + what)
    editor.notify("initialized")
    document = dict(uri=Editor.URI, languageId="cinch", version=1, text=PROGRAM)
    editor.notify("textDocument/didOpen", textDocument=document)
    expect(editor.diagnostics() == [], "a right program has diagnostics")

    value = lambda answer: answer["contents"]["value"] if answer else ""
    hover = lambda piece, skip=0: value(editor.at("textDocument/hover", PROGRAM, piece, skip))
    expect("logits: f32[B, C] = 32 x 4, 512 bytes" in hover("logits, y"), hover("logits, y"))
    expect("h: f32[B, H] = 32 x 16, 2.0 KiB" in hover("h = relu"), hover("h = relu"))
    expect("f32[B, C]" in hover("net(x)\n"), hover("net(x)\n"))
    expect("y: i32[B] in 0 .. 3 = 32, 128 bytes" in hover("y)\n  optimizer"), hover("y)\n  optimizer"))
    expect("layer relu(x: f32[..]) -> f32[..]" in hover("relu(up") and "prelude.cinch" in hover("relu(up"), hover("relu(up"))
    expect("layer mlp[H, O]" in hover("mlp[H, C]"), hover("mlp[H, C]"))
    expect("16" in hover("H = 2") and "I" in hover("H = 2"), hover("H = 2"))
    expect(hover("// Größe") == "", "a comment is no value")

    def defined(piece, text, skip=0):
        answer = editor.at("textDocument/definition", PROGRAM, piece, skip)
        if not answer:
            return text is None
        start, end = answer["range"]["start"], answer["range"]["end"]
        return PROGRAM.split("\n")[start["line"]][start["character"] : end["character"]] == text and start["line"]

    expect(defined("mlp[H, C]", "mlp") == 3, "the layer's definition")
    expect(defined("logits, y", "logits") == 10, "a value's definition")
    expect(defined("y)\n  optimizer", "y") == 2, "a field's definition")
    expect(defined("h)\n}", "h") == 5, "a value of a layer")
    expect(defined("H], down", "H") == 3, "a size of a layer hides the dim")
    expect(defined("relu(up", None) is True, "the prelude is no file")

    def said(piece, skip=0, **more):
        """Line and column of each place that says the name."""
        method = "textDocument/references" if more else "textDocument/documentHighlight"
        return [(a["range"]["start"]["line"], a["range"]["start"]["character"]) for a in editor.at(method, PROGRAM, piece, skip, **more) or []]

    lines = PROGRAM.split("\n")
    column = lambda line, piece: (line, lines[line].index(piece))
    for context in (dict(includeDeclaration=True), dict(includeDeclaration=False)):
        rest = [column(11, "logits, y")]
        expect(said("logits, y", context=context) == [column(10, "logits")] * context["includeDeclaration"] + rest, "a value and where it is used")
    # A size of a layer is not the dim of the same name.
    inner = [column(3, "H, O"), column(4, "H]")]
    expect(said("H], down") == inner and said("H, O]") == inner, said("H], down"))
    expect(said("H = 2") == [column(1, "H = 2"), column(8, "H, C")], said("H = 2"))
    expect(said("B = 32") == [column(1, "B = 32")] + [(2, i) for i in range(len(lines[2])) if lines[2][i:].startswith(("B, I]", "B] below"))] +
           [column(8, "B, I]"), column(8, "B, C]"), column(11, "B]")], said("B = 32"))
    expect(said("relu(up") == [column(5, "relu")], "a layer of the prelude is used here")
    expect(said("train = npy") == [column(2, "train"), (9, len("train net on "))], said("train = npy"))
    expect(said("net(x: f32") == [column(8, "net"), column(9, "net"), column(10, "net")], said("net(x: f32"))
    expect(said("lr = 0.1") == [] and said("// Gr") == [], "the name of a parameter, a comment")
    outline = editor.call("textDocument/documentSymbol", textDocument=dict(uri=Editor.URI))
    expect([each["name"] for each in outline] == ["B", "I", "H", "C", "train", "mlp", "net", "train net"], outline)
    texts = [lines[each["selectionRange"]["start"]["line"]][each["selectionRange"]["start"]["character"] : each["selectionRange"]["end"]["character"]]
             for each in outline]
    expect(texts == ["B", "I", "H", "C", "train", "mlp", "net", "net"], texts)
    expect(all(each["range"]["start"]["line"] <= each["selectionRange"]["start"]["line"] <= each["range"]["end"]["line"] for each in outline), outline)

    items = editor.at("textDocument/completion", PROGRAM, "cross_entropy(")["items"]
    labels = {item["label"]: item for item in items}
    for name in ("logits", "net", "mlp", "H", "x", "cross_entropy", "layer_norm", "optimizer", "mean", "train", "normalize"):
        expect(name in labels, "completion lacks " + name)
    expect("h" not in labels and len(labels) == len(items), "completion: names of other bodies, or twice")
    expect("f32[B, C]" in labels["logits"]["detail"], str(labels["logits"]))

    # Typing: a mistake, its mending, text that is no program yet.
    wrong = PROGRAM.replace("return down(h)", "return down(g)")
    change = lambda text: editor.notify("textDocument/didChange", textDocument=dict(uri=Editor.URI, version=2),
                                        contentChanges=[dict(text=text)])
    change(wrong)
    got = editor.diagnostics()
    got = [each for each in got if each["severity"] == 1]  # and a warning: `h` is never used
    expect(len(got) == 1 and got[0]["code"] == "E0101" and got[0]["severity"] == 1 and got[0]["range"]["start"]["line"] == 6
           and "`g`" in got[0]["message"], str(got))
    change(PROGRAM.replace("mlp[H, C]", "mlp[H, I]"))
    got = editor.diagnostics()
    expect(got and got[0]["range"]["start"]["line"] == 8 and "help" in str(got) or got[0].get("relatedInformation"), str(got))
    for end in range(0, len(PROGRAM), 7):
        change(PROGRAM[:end])
        editor.diagnostics()
        editor.call("textDocument/hover", textDocument=dict(uri=Editor.URI), position=dict(line=3, character=9))
        editor.call("textDocument/completion", textDocument=dict(uri=Editor.URI), position=dict(line=99, character=0))
    crooked = PROGRAM.replace("  h = relu", "      h=relu")
    change(crooked)
    editor.diagnostics()
    # A message cuts a long piece of the program behind 37 bytes, which may be in the middle of a character.
    for before in range(4):
        change(PROGRAM.replace("steps 5", 'steps 5; every 100 log("%s%s")' % ("x" * before, "ü" * 30)))
        got = [each["message"] for each in editor.diagnostics()]
        expect(any("ü..." in message for message in got), "a long text of two-byte letters behind %d others: %s" % (before, got))
    change(crooked)
    editor.diagnostics()
    edits = editor.call("textDocument/formatting", textDocument=dict(uri=Editor.URI), options=dict(tabSize=8, insertSpaces=True))
    expect(len(edits) == 1 and edits[0]["newText"] == PROGRAM, "formatting")
    change(PROGRAM)
    editor.diagnostics()
    expect(editor.call("textDocument/formatting", textDocument=dict(uri=Editor.URI), options=dict(tabSize=8, insertSpaces=True)) == [],
           "formatting twice")
    expect("code" in (editor.call("textDocument/rename", x=1) or {}), "an unknown method is answered with an error")
    expect(not editor.call("textDocument/hover", textDocument=dict(uri="file:///other.cinch"), position=dict(line=0, character=0)), "no such text")
    odd = dict(uri="file:///home/me/n%FCt.cinch", languageId="cinch", version=1, text=wrong)  # no UTF-8, as a name may be
    editor.notify("textDocument/didOpen", textDocument=odd)
    expect("E0101" in str(editor.diagnostics()), "a file whose name is not UTF-8")
    editor.notify("textDocument/didClose", textDocument=dict(uri=Editor.URI))
    expect(editor.diagnostics() == [], "closing clears")
    editor.call("shutdown")
    editor.notify("exit")
    expect(editor.server.wait(timeout=20) == 0, "it leaves with 0")
    expect(subprocess.run([CINCH, "lsp", "file"], stderr=subprocess.DEVNULL).returncode == 2, "lsp takes no file")


def worked(editor):
    """Seconds of processors that the server took, which others on the machine do not lengthen."""
    fields = pathlib.Path("/proc/%d/stat" % editor.server.pid).read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def out_of_turn():
    """Messages that are none, or come when they may not, are answered and end nothing; headers are written in any case."""
    editor = Editor()
    handshake = dict(processId=None, rootUri=None, capabilities={})

    def answer(body, header=b"Content-Length"):
        editor.server.stdin.write(header + b": %d\r\n\r\n" % len(body) + body)
        editor.server.stdin.flush()
        got = editor.receive()
        return got["error"]["code"] if "error" in got else got.get("result")

    expect(editor.call("textDocument/hover", textDocument=dict(uri=Editor.URI), position=dict(line=0, character=0))["code"] == -32002, "a request before initialize")
    editor.notify("textDocument/didOpen", textDocument=dict(uri=Editor.URI, languageId="cinch", version=1, text="dim"))
    expect("capabilities" in editor.call("initialize", **handshake), "initialize")
    expect(editor.call("initialize", **handshake)["code"] == -32600, "a second initialize")
    deep = 40000
    for body, code in ((b"[]", -32600), (b"null", -32600), (b"[1, 2", -32700), (b'{"jsonrpc":"2.0"}', -32600), (b'{"id":7,"method":"x"}', -32600),
                       (b'{"jsonrpc":"2.0","id":2,"method":"x","params":' + b"[" * deep + b"]" * deep + b"}", -32700)):
        expect(answer(body) == code, "%s: not %d" % (body[:40], code))
    hover = b'{"jsonrpc":"2.0","id":9,"method":"textDocument/hover","params":{"textDocument":{"uri":"file:///x.cinch"},"position":{"line":0,"character":0}}}'
    for header in (b"content-length", b"CONTENT-LENGTH", b"Content-Type: x\r\nContent-Length"):
        expect(answer(hover, header) is None, "the header %s" % header)
    # Of many errors, each is placed without counting from the begin of the text.
    editor.notify("textDocument/didOpen", textDocument=dict(uri=Editor.URI, languageId="cinch", version=1, text="// 🙂\n" + "dim B = 3 batch // 🙂 \n" * 8000 + "dim 1"))
    began = worked(editor)
    lines = [each["range"]["start"]["line"] for each in editor.diagnostics()]
    editor.notify("textDocument/didOpen", textDocument=dict(uri=Editor.URI, languageId="cinch", version=1, text="dim B = 3 batch\n" * 8000))
    found = editor.diagnostics()
    expect(len(found) > 7000 and found[-1]["range"]["start"] == dict(line=7999, character=4), "the last of %d errors" % len(found))
    took = worked(editor) - began
    expect(lines and took < 4, "thousands of errors take %.1f s of a processor" % took)
    editor.call("shutdown")
    expect(editor.call("textDocument/hover", textDocument=dict(uri=Editor.URI), position=dict(line=0, character=0))["code"] == -32600, "a request behind shutdown")
    editor.notify("exit")
    expect(editor.server.wait(timeout=20) == 0, "it leaves with 0")


def grammar():
    """A small reader of the grammar: the first pattern that matches at a place, as editors have it."""
    rules = json.loads((ROOT / "tools/editors/cinch.tmLanguage.json").read_text())
    expect(rules["scopeName"] == "source.cinch" and rules["fileTypes"] == ["cinch"], "the head of the grammar")
    patterns = [(re.compile(rule["match"]), rule["name"]) for rule in (rules["repository"][p["include"][1:]] for p in rules["patterns"])]

    def scopes(text):
        found = {}
        for line in text.split("\n"):
            at = 0
            while at < len(line):
                best = min(((m.start(), i, m, name) for i, (pattern, name) in enumerate(patterns) if (m := pattern.search(line, at)) and m.end() > m.start()),
                           default=None, key=lambda each: each[:2])
                if not best:
                    break
                found.setdefault(best[2].group(), set()).add(best[3])
                at = best[2].end()
        return found

    seen = scopes(PROGRAM)
    for text, scope in (("train", "keyword.control.cinch"), ("mean", "keyword.operator.word.cinch"), ("f32", "storage.type.cinch"),
                        ('"x.npy"', "string.quoted.double.cinch"), ("0.1", "constant.numeric.cinch"), ("relu", "entity.name.function.cinch"),
                        ("// Größe: ein 🙂 vor dem Code", "comment.line.double-slash.cinch")):
        expect(seen.get(text) == {scope}, "%s is %s" % (text, seen.get(text)))
    header = (ROOT / "compiler/frontend/grammar.ebnf").read_text()
    reserved = re.search(r"Reserved\s+(.*?)\(every", header, re.S)[1].split()
    for word in reserved:
        if word in ("true", "false"):
            continue
        expect(any(name.startswith("keyword") for name in scopes(word).get(word, ())), "the reserved word %s is no keyword" % word)
    for path in sorted((ROOT / "examples").rglob("*.cinch")):
        comments = [text for text, names in scopes(path.read_text()).items() if "comment.line.double-slash.cinch" in names]
        expect(comments and all(text.startswith("//") for text in comments), str(path))


session()
out_of_turn()
grammar()
print("%d passed, %d failed" % (passed, failed))
sys.exit(failed > 0)
