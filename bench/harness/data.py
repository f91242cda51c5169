"""Data for the programs under measurement: made up, the same every time, without NumPy, since benchmarks run where nothing but Python
is installed."""
import array
import random
import struct


def write_npy(path, kind, values):
    """`values`: numbers, or equally long rows of them; `kind`: "f" for f32, "i" for i32."""
    rows = values if isinstance(values[0], (list, tuple)) else None
    shape = (len(values), len(rows[0])) if rows else (len(values),)
    write_array(path, kind, shape, [value for row in rows for value in row] if rows else values)


def write_array(path, kind, shape, values):
    """`values`: all elements, row-major."""
    flat = array.array(kind, values)
    head = str({"descr": "<f4" if kind == "f" else "<i4", "fortran_order": False, "shape": shape})
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + flat.tobytes())


def vectors(folder, width, classes, count):
    """x.npy and y.npy: inputs, and labels that say something about them."""
    draw = random.Random(1)
    inputs = [[draw.uniform(-1, 1) for _ in range(width)] for _ in range(count)]
    write_npy(folder / "x.npy", "f", inputs)
    write_npy(folder / "y.npy", "i", [max(range(classes), key=lambda c: row[c]) for row in inputs])


def pictures(images, labels, count, side):
    """Two IDX files: grey pictures of ten classes."""
    draw = random.Random(1)
    images.write_bytes(struct.pack(">BBBBIII", 0, 0, 8, 3, count, side, side) + draw.randbytes(count * side * side))
    labels.write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, count) + bytes(draw.randrange(10) for _ in range(count)))


def text(folder, count=200_000):
    """train.txt and valid.txt, of `count` printable characters."""
    draw = random.Random(1)
    for name in ("train.txt", "valid.txt"):
        (folder / name).write_bytes(bytes(draw.randrange(32, 127) for _ in range(count)))
