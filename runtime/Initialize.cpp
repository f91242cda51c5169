// Initialize.cpp: drawn in f64 and rounded once, so that a program in f32 and one in f64 start from the same numbers.
#include "runtime/Initialize.h"
#include "runtime/Random.h"
#include "runtime/Worker.h"
#include <string.h>

namespace cinch::rt {

namespace {

void store(char *base, Elem elem, int64_t i, double value) {
  if (elem == Elem::F64)
    reinterpret_cast<double *>(base)[i] = value;
  else
    reinterpret_cast<float *>(base)[i] = float(value);
}

double load(const char *base, Elem elem, int64_t i) {
  return elem == Elem::F64 ? reinterpret_cast<const double *>(base)[i]
                           : double(reinterpret_cast<const float *>(base)[i]);
}

Philox blockOf(uint64_t key, int64_t pair, uint32_t attempt) {
  return philox(key, uint32_t(pair), uint32_t(uint64_t(pair) >> 32), attempt, kInitialValues);
}

// The first of the element's draws that lies within two deviations.
double truncated(uint64_t key, int64_t i) {
  for (uint32_t attempt = 0;; ++attempt) {
    double z[2];
    normalPair(blockOf(key, i >> 1, attempt), z[0], z[1]);
    if (z[i & 1] >= -2.0 && z[i & 1] <= 2.0)
      return z[i & 1];
  }
}

struct Drawing {
  const Parameter *parameter;
  char *base;
  uint64_t key;
  int64_t part = 0; // of a parameter that is split: all numbers are drawn, and those of the part stored
};

void draw(void *closure, int64_t thread, int64_t threads) {
  const Drawing &drawing = *static_cast<Drawing *>(closure);
  const Parameter &parameter = *drawing.parameter;
  const double a = parameter.init.a;
  int64_t count = parameter.shape.count(), begin, end;
  share((count + 1) / 2, thread, threads, begin, end);
  for (int64_t pair = begin; pair < end; ++pair) {
    double values[2];
    switch (parameter.init.kind) {
    case InitialValue::Constant: values[0] = values[1] = a; break;
    case InitialValue::Normal:
    case InitialValue::Orthogonal:
      normalPair(blockOf(drawing.key, pair, 0), values[0], values[1]);
      if (parameter.init.kind == InitialValue::Normal)
        values[0] *= a, values[1] *= a;
      break;
    case InitialValue::TruncatedNormal:
      values[0] = a * truncated(drawing.key, 2 * pair);
      values[1] = a * truncated(drawing.key, 2 * pair + 1);
      break;
    case InitialValue::Uniform: {
      Philox block = blockOf(drawing.key, pair, 0);
      values[0] = a * (2.0 * uniform53(block, 0) - 1.0);
      values[1] = a * (2.0 * uniform53(block, 1) - 1.0);
      break;
    }
    }
    for (int64_t i = 2 * pair; i < 2 * pair + 2 && i < count; ++i) {
      int64_t at = parameter.parts == 1 ? i : placeInPart(i, drawing.part, count, parameter.before, parameter.parts);
      if (at >= 0)
        store(drawing.base, parameter.elem, at, values[i & 1]);
    }
  }
}

// Makes the shorter side of a matrix of normal numbers orthonormal, by Gram and Schmidt, twice over each vector (Giraud
// et al., 2005), with sums in f64 and no memory but the parameter's own; then scales it.
void orthogonalize(const Parameter &parameter, char *base) {
  int64_t rows = parameter.shape.rank ? parameter.shape.dims[0] : 1, cols = parameter.shape.count() / rows;
  bool byRow = rows <= cols;
  int64_t vectors = byRow ? rows : cols, length = byRow ? cols : rows;
  int64_t vectorStep = byRow ? cols : 1, elementStep = byRow ? 1 : cols;
  auto at = [&](int64_t v, int64_t e) { return v * vectorStep + e * elementStep; };
  auto dot = [&](int64_t v, int64_t w) {
    double sum = 0;
    for (int64_t e = 0; e < length; ++e)
      sum += load(base, parameter.elem, at(v, e)) * load(base, parameter.elem, at(w, e));
    return sum;
  };
  for (int64_t v = 0; v < vectors; ++v)
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t w = 0; w < v; ++w) {
        double along = dot(v, w);
        for (int64_t e = 0; e < length; ++e)
          store(base, parameter.elem, at(v, e),
                load(base, parameter.elem, at(v, e)) - along * load(base, parameter.elem, at(w, e)));
      }
      double norm = __builtin_sqrt(dot(v, v));
      for (int64_t e = 0; e < length; ++e)
        store(base, parameter.elem, at(v, e), load(base, parameter.elem, at(v, e)) / norm);
    }
  for (int64_t i = 0; i < vectors * length; ++i)
    store(base, parameter.elem, i, parameter.init.a * load(base, parameter.elem, i));
}

} // namespace

// Averages start where the parameter does of which they are the average.
static const Parameter &sourceOf(const Meta &meta, const Parameter &parameter) {
  for (const Parameter &other : meta.parameters)
    if (parameter.averageOf && strcmp(other.path, parameter.averageOf) == 0)
      return other;
  return parameter;
}

static void initializeWorker(void *closure, int64_t number, int64_t) {
  const Meta &meta = *static_cast<const Meta *>(closure);
  Worker &worker = workers[number];
  for (const Parameter &parameter : meta.parameters)
    for (int64_t place = -1; place < parameter.copies.size; ++place) {
      int64_t at = place < 0 ? parameter.offset : parameter.copies[place];
      if (!worker.has(at))
        continue;
      const Parameter &source = sourceOf(meta, parameter);
      Drawing drawing = {&source, arenaAt(at), streamKey(meta.seed, source.path), parameter.partAt(at)};
      worker.pool.run(draw, &drawing);
      if (source.init.kind == InitialValue::Orthogonal)
        orthogonalize(source, drawing.base);
    }
  for (const Stored &slot : meta.slots)
    if (int64_t at = worker.placeOf(slot); at >= 0 && slot.startsFrom < 0) // others start as parameters, if not as copies of them here
      memset(arenaAt(at), 0, size_t(slot.partBytes()));
}

void initialize(const Meta &meta) { runWorkers(initializeWorker, const_cast<Meta *>(&meta)); }

} // namespace cinch::rt
