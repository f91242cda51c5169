// Normalize.cpp: see Normalize.h.
#include "runtime/Normalize.h"
#include "runtime/ColumnBytes.h"
#include "runtime/Output.h"
#include "runtime/OwnRows.h"
#include <string.h>

namespace cinch::rt {

static List<Normal> list;
static_assert(kCountBytes == sizeof(double));
static_assert(kNormalBytes == sizeof(*Normal::mean) + sizeof(*Normal::deviation) + sizeof(bool)); // the last: constantColumns

List<Normal> &normals() { return list; }

void prepareNormals(const Meta &meta, bool said) {
  const DatasetSpec &trained = meta.datasets[meta.trainDataset];
  for (const FieldSpec &field : trained.fields) {
    if (!field.normalize)
      continue;
    Normal &normal = list.add();
    Text mean, deviation;
    mean.add("data.%s.%s.mean", trained.name, field.name);
    deviation.add("data.%s.%s.std", trained.name, field.name);
    normal.field = field.name;
    normal.meanName = copyText(mean.data, mean.size);
    normal.deviationName = copyText(deviation.data, deviation.size);
    normal.shape.rank = 1;
    normal.shape.dims[0] = trained.shapeOfRow(field).count();
    normal.mean = allocateArray<double>(normal.shape.dims[0]);
    normal.deviation = allocateArray<double>(normal.shape.dims[0]);
    for (int64_t i = 0; i < normal.shape.dims[0]; ++i) {
      normal.mean[i] = said ? 0 : __builtin_nan("");
      normal.deviation[i] = said ? 1 : __builtin_nan("");
    }
  }
}

const Normal *normalOf(const char *field) {
  for (const Normal &normal : list)
    if (strcmp(normal.field, field) == 0)
      return &normal;
  return nullptr;
}

// The rows of a file that are trained on.
namespace {
struct Rows {
  const FieldFile &file;
  const OwnRows *own; // null: all of them
  int64_t count() const { return own ? own->count() : file.rows; }
};
} // namespace

// Adds up f(value, column) over the rows, in each column those that have a number there.
template <typename Function> static void addRows(const Rows &rows, double *sums, Function f) {
  const FieldFile &file = rows.file;
  double buffer[256];
  for (int64_t column = 0; column < file.columns; ++column)
    sums[column] = 0;
  const int64_t total = file.rows * file.columns;
  bool counts = true;
  for (int64_t done = 0, row = 0, column = 0; done < total;) {
    int64_t now = total - done < 256 ? total - done : 256;
    readReals(file, done, now, buffer);
    for (int64_t i = 0; i < now; ++i) {
      if (column == 0)
        counts = !rows.own || rows.own->owns(row++);
      if (counts && !isGap(file, buffer[i]))
        sums[column] += f(buffer[i], column);
      column = column + 1 == file.columns ? 0 : column + 1;
    }
    done += now;
  }
}

// Whether all rows hold the same value in a column. Its mean is rounded, so that its deviation would be the rounding error instead of 0.
static const bool *constantColumns(const Rows &rows, const Normal &normal) {
  const FieldFile &file = rows.file;
  double *first = normal.mean, *others = normal.deviation; // rows that hold another value; both are found anew behind this
  bool *constant = allocateArray<bool>(file.columns);
  for (int64_t column = 0; column < file.columns; ++column)
    first[column] = __builtin_nan(""); // which no number is
  addRows(rows, others, [&](double value, int64_t column) {
    if (first[column] != first[column])
      first[column] = value;
    return value == first[column] ? 0.0 : 1.0;
  });
  for (int64_t column = 0; column < file.columns; ++column)
    constant[column] = others[column] == 0;
  return constant;
}

// How many numbers each column has; null: one in each row.
static const double *countNumbers(const Rows &rows, const DatasetSpec &spec, const FieldSpec &field) {
  const FieldFile &file = rows.file;
  if (!file.gaps)
    return nullptr;
  double *counts = allocateArray<double>(file.columns);
  addRows(rows, counts, [](double, int64_t) { return 1.0; });
  for (int64_t column = 0; column < file.columns; ++column)
    if (counts[column] == 0)
      fail(kData, "%s: no row of data `%s` has a number in the column `%s` of field `%s`, so there is no mean that its cells could count as; take the column out",
           spec.files[0], spec.name, field.from[column], field.name);
  return counts;
}

void findNormals(const Dataset &trained) {
  for (Normal &normal : list)
    for (int64_t i = 0; i < trained.spec->fields.size; ++i) {
      if (strcmp(trained.spec->fields[i].name, normal.field) != 0 || trained.fields[i].fd < 0)
        continue;
      normal.found = true;
      const FieldFile &file = trained.fields[i];
      const Rows rows = {file, trained.own};
      const bool *constant = constantColumns(rows, normal);
      const double *counts = countNumbers(rows, *trained.spec, trained.spec->fields[i]);
      auto numbersOf = [&](int64_t column) { return counts ? counts[column] : double(rows.count()); };
      addRows(rows, normal.mean, [](double value, int64_t) { return value; });
      for (int64_t column = 0; column < file.columns; ++column)
        normal.mean[column] /= numbersOf(column);
      addRows(rows, normal.deviation, [&](double value, int64_t column) {
        double d = value - normal.mean[column];
        return d * d;
      });
      for (int64_t column = 0; column < file.columns; ++column) {
        double deviation = __builtin_sqrt(normal.deviation[column] / numbersOf(column));
        if (!__builtin_isfinite(deviation)) // nor is it where the mean is not
          fail(kData, "data `%s`: the values of field `%s`, column %lld, are too large to be normalized: the sum of their squares is beyond f64; save them in "
                      "another unit", trained.spec->name, normal.field, (long long)column);
        normal.deviation[column] = constant[column] || !(deviation > 0) ? 1 : deviation;
      }
    }
}

int64_t normalNumbers() {
  int64_t count = 0;
  for (const Normal &normal : list)
    count += 1 + 2 * normal.shape.dims[0];
  return count;
}

void packNormals(double *numbers) {
  for (const Normal &normal : list) {
    const int64_t columns = normal.shape.dims[0];
    *numbers++ = normal.found;
    memcpy(numbers, normal.mean, size_t(columns) * 8);
    memcpy(numbers + columns, normal.deviation, size_t(columns) * 8);
    numbers += 2 * columns;
  }
}

void unpackNormals(const double *numbers, bool onlyFound) {
  for (const Normal &normal : list) {
    const int64_t columns = normal.shape.dims[0];
    if (*numbers++ != 0 || !onlyFound) {
      memcpy(normal.mean, numbers, size_t(columns) * 8);
      memcpy(normal.deviation, numbers + columns, size_t(columns) * 8);
    }
    numbers += 2 * columns;
  }
}

} // namespace cinch::rt
