"""Arrays into .npy files, without NumPy: benchmarks run where nothing but Python is installed."""
import array
import struct


def write_npy(path, kind, values):
    """`values`: numbers, or equally long rows of them; `kind`: "f" for f32, "i" for i32."""
    rows = values if isinstance(values[0], (list, tuple)) else None
    shape = (len(values), len(rows[0])) if rows else (len(values),)
    flat = array.array(kind, [value for row in rows for value in row] if rows else values)
    head = str({"descr": "<f4" if kind == "f" else "<i4", "fortran_order": False, "shape": shape})
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + flat.tobytes())
