#!/usr/bin/python3
"""`cinch fmt`: every program of the tree is formatted already, and so is one whose indentation, line ends and empty lines were
spoiled once it was formatted; comments and tokens stay; what has errors is left alone."""
import os
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CINCH = os.environ.get("CINCH", str(ROOT / "build/bin/cinch"))
FOLDER = tempfile.TemporaryDirectory(prefix="cinch-format-")

MESSY = """\ufeff

dim B=8 batch,D = 4 ,  C=10// sizes
data train=npz( "d.npz" )->(x:f32[ B,D ] scale - 1/255,
y : i32[B] below C except -   100)



layer two [K , I?](x:f32[..,I],rate=0.1)->f32[..,K]{
// what it does
      use l=linear[ K ](with_bias=false) ,
m = linear[K]
  scale=l(x)*2+-m (x) ;   h=scale-1; return dropout(h ,rate)   // the end
}
model net(x:f32[B,D])->f32[B,C]{ use t=two[C];return t(x) }
train net on train seed 1{
  logits    =   net(x)

  loss=mean [B] cross_entropy(logits,
y)  ;  metric acc = mean[B](argmax( logits )==y)
  optimizer   sgd( lr=0.1 )
       // at the end
  steps 10   }
"""
TIDY = """dim B = 8 batch, D = 4,  C = 10 // sizes
data train = npz("d.npz") -> (x: f32[B, D] scale -1/255,
                              y: i32[B] below C except -100)

layer two[K, I?](x: f32[.., I], rate = 0.1) -> f32[.., K] {
  // what it does
  use l = linear[K](with_bias = false),
      m = linear[K]
  scale = l(x) * 2 + -m (x);   h = scale - 1; return dropout(h, rate)   // the end
}
model net(x: f32[B, D]) -> f32[B, C] { use t = two[C]; return t(x) }
train net on train seed 1 {
  logits    =   net(x)

  loss = mean[B] cross_entropy(logits,
                               y);  metric acc = mean[B](argmax(logits) == y)
  optimizer   sgd(lr = 0.1)
  // at the end
  steps 10   }
"""
passed = failed = 0


def expect(good, what):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print("FAILED: " + what)


def fmt(text, *flags):
    done = subprocess.run([CINCH, "fmt", "-", *flags], input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def programs():
    for path in sorted(ROOT.rglob("*.cinch")):
        if not any(part.startswith("build") for part in path.relative_to(ROOT).parts) and "frontend/wrong" not in str(path):
            yield path


def main():
    code, out, err = fmt(MESSY)
    expect(code == 0 and out == TIDY, "a messy program becomes\n%s%s" % (out, err))
    expect(fmt(TIDY)[1] == TIDY, "what is formatted stays")
    code, out, err = fmt("dim B = 4 batch; // a\ndim C = 3;// b\n\n; // c\ndim D = 1")
    expect(code == 0 and out == "dim B = 4 batch // a\ndim C = 3 // b\n\n// c\ndim D = 1\n", "comments behind `;`\n%s%s" % (out, err))
    code, out, err = fmt("dim B = 2 batch;")
    expect(code == 0 and out == "dim B = 2 batch\n", "a `;` at the end of a file without a line end\n%s%s" % (out, err))
    count = 0
    for path in programs():
        text = path.read_text()
        code, out, err = fmt(text)
        count += 1
        expect(code == 0 and out == text, "%s is not formatted (cinch fmt FILE mends that)\n%s" % (path.relative_to(ROOT), err))
        spoiled = re.sub(r"(?m)^[ \t]+", "", text)
        expect(fmt(spoiled)[1] == text, "%s without its indentation" % path.relative_to(ROOT))
        spoiled = re.sub(r"(?m)^", "\t   ", text).replace("\n", "  \r\n").replace("\r\n\t   \r\n", "\n\n\n\n") + "\n\n\n"
        expect(fmt(spoiled)[1] == text, "%s with other line ends" % path.relative_to(ROOT))
    expect(count > 30, "%d programs were found" % count)

    folder = pathlib.Path(FOLDER.name)
    messy, tidy, wrong = folder / "messy.cinch", folder / "tidy.cinch", folder / "wrong.cinch"
    messy.write_text(MESSY)
    tidy.write_text(TIDY)
    wrong.write_text("dim B = = 8\n")
    messy.chmod(0o640)
    call = lambda *words: subprocess.run([CINCH, "fmt", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    done = call("--check", messy, tidy)
    expect(done.returncode == 1 and done.stdout == str(messy) + "\n" and messy.read_text() == MESSY, "--check: " + done.stdout)
    before = tidy.stat().st_mtime_ns
    done = call(messy, tidy)
    expect(done.returncode == 0 and messy.read_text() == TIDY and done.stdout == "", "in their place: " + done.stdout)
    expect(tidy.stat().st_mtime_ns == before and messy.stat().st_mode & 0o777 == 0o640, "untouched, with its mode")
    done = call(wrong, messy)
    expect(done.returncode == 1 and "E0010" in done.stdout and wrong.read_text() == "dim B = = 8\n", "errors: " + done.stdout)
    expect(call(folder / "nowhere.cinch").returncode == 2 and call().returncode == 2, "nothing to format")
    expect(sorted(p.name for p in folder.iterdir()) == ["messy.cinch", "tidy.cinch", "wrong.cinch"], "nothing is left behind")
    link = folder / "link.cinch"
    link.symlink_to("messy.cinch")
    messy.write_text(MESSY)
    done = call(link)
    expect(done.returncode == 0 and link.is_symlink() and messy.read_text() == TIDY, "a link stays one, and what it leads to is formatted: " + done.stdout)


main()
print("%d passed, %d failed" % (passed, failed))
raise SystemExit(failed != 0)
