#!/usr/bin/env python3
"""train.py: the same as train.c, from Python with ctypes and NumPy: `python3 train.py ./libmoons.so`."""

import ctypes
import sys
import weakref

import numpy as np


class Value(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("rank", ctypes.c_int64),
        ("shape", ctypes.c_int64 * 12),
        ("data", ctypes.c_void_p),
    ]


class Model:
    """A library of `cinch --emit=lib`; arrays go in and come out, a failure is an exception.

    Every array has a row for each example, already scaled and normalized; one of another shape is a ValueError. A library has one model in a
    process: a second `Model` of the same file would begin it anew under the first one's hands, so it is refused while the first is in use. A copy of
    the file under another name is another library.
    """

    LIVE = weakref.WeakValueDictionary()  # by the library's handle
    PARAMETER, FIELD, METRIC, RESULT = range(4)
    TYPES = {b"F32": np.float32, b"F64": np.float64, b"I32": np.int32, b"BOOL": np.bool_}

    def __init__(self, path, threads=0):
        self.library = ctypes.CDLL(path)
        if self.library._handle in self.LIVE:
            raise RuntimeError("%s has a model in this process already; use that one, delete it, or load a copy of the file" % path)
        self.library.cinch_model_error.restype = ctypes.c_char_p
        self.library.cinch_model_batch.restype = ctypes.c_int64
        self.call("init", ctypes.c_int64(threads))
        self.batch = self.library.cinch_model_batch()
        self.fields, self.metrics, self.results = (self.list(kind) for kind in (self.FIELD, self.METRIC, self.RESULT))
        self.LIVE[self.library._handle] = self

    def call(self, name, *arguments):
        code = getattr(self.library, "cinch_model_" + name)(*arguments)
        if code:
            raise RuntimeError("%s (%d)" % (self.library.cinch_model_error().decode(errors="replace"), code))

    def list(self, kind):
        found = {}
        while True:
            value = Value()
            if self.library.cinch_model_value(kind, ctypes.c_int64(len(found)), ctypes.byref(value)):
                return found
            found[value.name.decode()] = (self.TYPES[value.dtype], tuple(value.shape[: value.rank]))

    def count(self, arrays):
        """How many examples the arrays have, which all must have, of the shapes that the fields have."""
        count = None
        for name, array in arrays.items():
            if name not in self.fields:
                raise ValueError("there is no field `%s`; expected %s" % (name, ", ".join("`%s`" % each for each in self.fields)))
            given, (_, shape) = np.shape(array), self.fields[name]
            rows = given[0] if count is None and given else count
            if given != (rows, *shape):
                raise ValueError("field `%s` has the shape %s; expected %s" % (name, list(given), self.expected(name, count)))
            count = rows
        if count is None:
            raise ValueError("no field is given; expected %s" % ", ".join("`%s`" % each for each in self.fields))
        return count

    def expected(self, name, count=None):
        return "[%s]" % ", ".join(str(size) for size in ("examples" if count is None else count, *self.fields[name][1]))

    def compute(self, name, arrays, *arguments):
        kept = [np.ascontiguousarray(arrays[n], t) if n in arrays else None for n, (t, _) in self.fields.items()]
        pointers = (ctypes.c_void_p * len(kept))(*[None if a is None else a.ctypes.data for a in kept])
        try:
            self.call(name, pointers, *arguments)
        except RuntimeError as error:
            for missing in self.fields.keys() - arrays.keys():
                if str(error).startswith("field `%s` is NULL" % missing):
                    raise ValueError("field `%s` is not given, and %s reads it; expected an array of %s" % (missing, name, self.expected(missing))) from None
            raise

    def step(self, **fields):
        loss = ctypes.c_double()
        count = self.count(fields)
        if count != self.batch:
            raise ValueError("field `%s` has %d examples; expected the %d of a batch" % (next(iter(fields)), count, self.batch))
        self.compute("step", fields, ctypes.byref(loss))
        return loss.value

    def evaluate(self, **fields):
        sizes = [int(np.prod(shape)) for _, shape in self.metrics.values()]
        values, count = np.zeros(sum(sizes)), self.count(fields)
        self.compute("evaluate", fields, ctypes.c_int64(count), ctypes.c_void_p(values.ctypes.data))
        parts = np.split(values, np.cumsum(sizes)[:-1])
        return {name: part.reshape(shape)[()] for part, (name, (_, shape)) in zip(parts, self.metrics.items())}

    def predict(self, **fields):
        count = self.count(fields)
        results = {name: np.zeros((count, *shape), t) for name, (t, shape) in self.results.items()}
        into = (ctypes.c_void_p * len(results))(*[array.ctypes.data for array in results.values()])
        self.compute("predict", fields, ctypes.c_int64(count), into)
        return results

    def parameter(self, path):
        """A view of the parameter itself: writing to it changes the model."""
        value = Value()
        self.call("parameter", path.encode(), ctypes.byref(value))
        kind, shape = self.TYPES[value.dtype], tuple(value.shape[: value.rank])
        bytes_ = int(np.prod(shape)) * np.dtype(kind).itemsize
        return np.frombuffer((ctypes.c_char * bytes_).from_address(value.data), kind).reshape(shape)

    def load(self, path):
        self.call("load", str(path).encode())

    def save(self, path):
        self.call("save", str(path).encode())

    def set(self, text):
        self.call("set", text.encode())


def main():
    table = np.loadtxt("points.csv", delimiter=",", skiprows=1)
    x, label = table[:, :2].astype(np.float32), table[:, 2].astype(np.int32)
    model = Model(sys.argv[1] if len(sys.argv) > 1 else "./libmoons.so")
    for step in range(300):
        first = step * model.batch % len(x)
        rows = slice(first, first + model.batch)
        loss = model.step(x=x[rows], label=label[rows])
        if step % 50 == 0:
            print("step %d  loss %.6f" % (step + 1, loss))
    metrics = model.evaluate(x=x, label=label)
    print("loss %.6f, %.1f %% right" % (metrics["loss"], 100 * metrics["right"]))
    print("out.bias %.6f %.6f" % tuple(model.parameter("out.bias")))
    points = np.array([[0, 1], [1, -0.5], [0.5, 0.25]], np.float32)
    for point, share in zip(points, model.predict(x=points)["share"]):
        print("(%.2f, %.2f): %.4f %.4f" % (*point, *share))
    model.save("from-python.safetensors")


if __name__ == "__main__":
    main()
