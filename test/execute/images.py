#!/usr/bin/python3
"""tools/images: folders of PNG and JPEG files become idx files that a program trains on. The bytes are those that Pillow reads."""
import re
import subprocess

import numpy as np

import programs

ROOT = programs.HERE.parent.parent
PROGRAM = """dim B = 4 batch
%s
model net(x: f32[B, 3, 6, 8]) -> f32[B, 3] {
  use c = conv[4, 3], out = linear[3]
  return out(global_avg_pool(relu(c(gaussian_noise(random_erase[2](random_flip_vertical(random_flip(random_crop[1](x)))), 0.05)))))
}
train net on train seed 1 {
  w = vector(1, 2, 4)
  logits = net(x)
  loss = (sum[B] w[y] * cross_entropy(logits, y)) / sum[B] w[y]
  metric right = mean[B] (argmax(logits) == y)
  optimizer adam(lr = 0.02)
  steps 40
  every 40 eval(valid)
}
"""
verdicts = programs.Verdicts()


def tool(*words, code=0):
    done = subprocess.run(["/usr/bin/python3", ROOT / "tools/images", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    verdicts.expect(done.returncode == code, "images %s: exit %d\n%s" % (words, done.returncode, done.stdout))
    return done.stdout


def read_idx(path):
    data = path.read_bytes()
    axes = np.frombuffer(data, ">u4", data[3], 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(axes)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def sixteen_bits(Image):
    """Of 16 bits the upper 8 count, in gray and, as Pillow reads them, in coloured pictures."""
    folder, out = programs.FOLDER / "deep", programs.FOLDER / "deep-data"
    (folder / "scans").mkdir(parents=True)
    values = np.arange(0, 65536, 1024).reshape(8, 8) + 300
    Image.fromarray(values.astype(np.uint16)).save(folder / "scans/deep.png")
    upper = (values // 256).astype(np.uint8)
    for flags, channels in (((), 3), (("--gray",), 1)):
        tool(folder, out, "--size", "8", "--hold-out", "0", *flags)
        images = read_idx(out / "train-images").reshape(channels, 8, 8)
        verdicts.expect((images == upper).all(), "16 bits: %s instead of %s" % (images[0, :2], upper[:2]))


def links(Image):
    """Linked folders are read like others, at each depth, and a link to a folder above is passed over; a name is one line of classes.txt."""
    folder, out, more = programs.FOLDER / "linked", programs.FOLDER / "linked-data", programs.FOLDER / "more"
    for place in (folder / "a", more):
        place.mkdir(parents=True)
        Image.new("RGB", (4, 4), (1, 2, 3)).save(place / "x.png")
    (folder / "a/deeper").symlink_to(more)
    (folder / "a/back").symlink_to(folder)
    (folder / "b").symlink_to(more)
    (more / "self").symlink_to(more)
    said = tool(folder, out, "--size", "4", "--hold-out", "0")
    verdicts.expect((out / "classes.txt").read_text() == "a\nb\n" and np.bincount(read_idx(out / "train-labels")).tolist() == [2, 1], said)
    before = contents(out)
    (folder / "c\nd").symlink_to(more)
    said = tool(folder, out, "--size", "4", code=1)
    verdicts.expect("has a line end in it" in said and "Traceback" not in said and contents(out) == before, said)


def main():
    try:
        from PIL import Image
    except ImportError:
        verdicts.expect("python3-pil" in tool(programs.FOLDER, programs.FOLDER / "none", code=1), "Pillow is not asked for")
        return
    rng = np.random.default_rng(5)
    pictures, out = programs.FOLDER / "pictures", programs.FOLDER / "data"
    for label, (name, suffix) in enumerate((("cats", "png"), ("dogs", "jpg"), ("birds of prey", "JPEG"))):
        (pictures / name / "more").mkdir(parents=True)
        for number in range(10):
            colours = rng.integers(0, 80, (6, 8, 3)) + np.eye(3, dtype=int)[label] * 150
            picture = Image.fromarray(colours.astype(np.uint8))
            picture.save(pictures / name / ("more" if number % 2 else ".") / ("%d.%s" % (number, suffix)))
    (pictures / "empty").mkdir()
    (pictures / "notes.txt").write_text("no picture")
    said = tool(pictures, out, "--size", "6x8", "--hold-out", "0.2")
    verdicts.expect("24 pictures to train on, 6 held out, 3 classes" in said, said)
    verdicts.expect((out / "classes.txt").read_text() == "birds of prey\ncats\ndogs\n", "the classes' names")
    images, labels = read_idx(out / "train-images"), read_idx(out / "train-labels")
    verdicts.expect(images.shape == (24, 3, 6, 8) and np.bincount(labels).tolist() == [8, 8, 8], "%s %s" % (images.shape, labels))
    stored = {np.asarray(Image.open(path).convert("RGB")).transpose(2, 0, 1).tobytes() for path in pictures.rglob("*") if path.suffix.lower() in (".png", ".jpg", ".jpeg")}
    held = read_idx(out / "valid-images")
    verdicts.expect(all(i.tobytes() in stored for i in [*images, *held]) and len(stored) == 30, "other bytes than Pillow's")
    program = programs.source("pictures", PROGRAM % "\n".join(line for line in said.splitlines() if line.startswith("data")))
    exe = programs.compiled(program, "at-once")
    done = programs.call([exe, "--data", out, "--out", programs.FOLDER / "run"])
    right = re.search(r"valid:.*right ([\d.]+)", done.stdout)
    verdicts.expect(right and float(right[1]) == 1, done.stdout[-600:])
    small = programs.compiled(program, "one-at-a-time", "--microbatch", "1", "--remat", "all")
    programs.call([small, "--data", out, "--out", programs.FOLDER / "small", "--threads", "1"])
    verdicts.expect((programs.FOLDER / "run/final.safetensors").read_bytes() == (programs.FOLDER / "small/final.safetensors").read_bytes(),
                    "drawn pictures: another plan gives other bits")

    sixteen_bits(Image)
    said = tool(pictures, programs.FOLDER / "gray", "--size", "5", "--gray", "--hold-out", "0")
    verdicts.expect(read_idx(programs.FOLDER / "gray/train-images").shape == (30, 5, 5) and "valid" not in said, said)
    before = contents(out)
    (pictures / "cats/broken.png").write_bytes(b"\x89PNG no")
    verdicts.expect("broken.png cannot be read" in tool(pictures, out, code=1), "a broken file is not named")
    verdicts.expect(contents(out) == before, "a call that fails changes what an earlier one wrote: %s" % sorted(contents(out)))
    verdicts.expect("each class has a folder" in tool(pictures / "empty", out, code=1), "no pictures")
    for size in ("6by8", "²x4", "4x²", "0x4"):
        verdicts.expect("HEIGHTxWIDTH" in tool(pictures, out, "--size", size, code=2), "a wrong size: " + size)
    tool(programs.FOLDER / "nowhere", out, code=1)
    (pictures / "cats/broken.png").unlink()
    tool(pictures, out, "--size", "6x8", "--hold-out", "0")
    verdicts.expect(sorted(contents(out)) == ["classes.txt", "train-images", "train-labels"], "what was held out before stays: %s" % sorted(contents(out)))
    with open("/dev/full", "w") as full:
        done = subprocess.run(["/usr/bin/python3", ROOT / "tools/images", pictures, out, "--size", "6x8"], stdout=full, stderr=subprocess.PIPE, text=True)
    verdicts.expect(done.returncode == 1 and done.stderr == "images: standard output cannot be written: No space left on device; the files are in %s\n" % out,
                    "standard output is full: exit %d\n%s" % (done.returncode, done.stderr))
    links(Image)
    for where in ("/proc/pictures", out / "classes.txt"):
        said = tool(pictures, where, code=1)
        verdicts.expect("images: %s cannot be written: " % where in said and "Traceback" not in said, said)


verdicts.run(main)
