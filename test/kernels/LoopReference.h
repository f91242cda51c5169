// LoopReference.h: the meaning of a LoopSpec, evaluated one element at a time.
//
// Every node is computed for the whole chain x column rectangle of one outer element, whatever its level: no
// simplification, no passes, no vectors. Loads see memory as it was before the kernel.
#ifndef CINCH_TEST_KERNELS_LOOPREFERENCE_H
#define CINCH_TEST_KERNELS_LOOPREFERENCE_H

#include "compiler/kernels/Kernels.h"
#include "compiler/kernels/HostOps.h"

#include <array>
#include <limits>
#include <map>
#include <vector>

namespace cinch::test {

using namespace cinch::kernels;
using namespace cinch::kernels::host;

class LoopReference {
public:
  LoopReference(const LoopSpec &spec, const std::vector<std::vector<char>> &before, const int64_t *context,
                const std::vector<int64_t> &keyWords = {})
      : spec(spec), before(before), after(before), context(context), keyWords(keyWords) {}

  // Memory after the kernel, one vector a buffer.
  std::vector<std::vector<char>> run() {
    std::vector<int64_t> o(spec.outer.size(), 0);
    do
      outerElement(o);
    while (advance(o, spec.outer));
    return after;
  }

private:
  static bool advance(std::vector<int64_t> &at, const std::vector<int64_t> &dims) {
    for (size_t i = dims.size(); i-- > 0;) {
      if (++at[i] < dims[i])
        return true;
      at[i] = 0;
    }
    return false;
  }

  struct Place {
    std::vector<int64_t> at; // outer.., chain.., column
  };

  int64_t number(int64_t offset, const std::vector<int64_t> &strides, const Place &p) {
    for (size_t i = 0; i < strides.size(); ++i)
      offset += strides[i] * p.at[i];
    return offset;
  }

  static Cell read(const std::vector<char> &memory, int64_t at, Elem elem) {
    Cell cell;
    if (elem == Elem::F32)
      std::memcpy(&cell.f32, memory.data() + 4 * at, 4);
    else if (elem == Elem::F64)
      std::memcpy(&cell.f64, memory.data() + 8 * at, 8);
    else if (elem == Elem::I32)
      std::memcpy(&cell.i32, memory.data() + 4 * at, 4);
    else
      cell.i32 = memory[at] != 0;
    return cell;
  }
  static void write(std::vector<char> &memory, int64_t at, Elem elem, Cell cell) {
    if (elem == Elem::F32)
      std::memcpy(memory.data() + 4 * at, &cell.f32, 4);
    else if (elem == Elem::F64)
      std::memcpy(memory.data() + 8 * at, &cell.f64, 8);
    else if (elem == Elem::I32)
      std::memcpy(memory.data() + 4 * at, &cell.i32, 4);
    else
      memory[at] = char(cell.i32 != 0);
  }

  Cell draw(const LoopNode &n, const Place &p) {
    int64_t element = number(n.view.offset, n.view.strides, p) + context[kFirstPosition] * n.positionStride;
    uint64_t example = n.usesExample ? uint64_t(context[kFirstExample] + number(0, n.exampleStrides, p)) : 0;
    double given = n.numberWord < 0 ? n.number : double(keyWords[n.numberWord]) / 65536;
    return host::draw(n.op, given, n.keyWord < 0 ? n.key : uint64_t(keyWords[n.keyWord]), context, example, element);
  }

  void outerElement(const std::vector<int64_t> &o) {
    int64_t rows = 1;
    for (int64_t dim : spec.chain)
      rows *= dim;
    int64_t cols = spec.cols;
    std::vector<Place> places;
    std::vector<int64_t> r(spec.chain.size(), 0);
    do {
      for (int64_t c = 0; c < cols; ++c) {
        Place p{o};
        p.at.insert(p.at.end(), r.begin(), r.end());
        p.at.push_back(c);
        places.push_back(p);
      }
    } while (advance(r, spec.chain));

    std::vector<std::vector<Cell>> values(spec.nodes.size(), std::vector<Cell>(rows * cols));
    for (size_t i = 0; i < spec.nodes.size(); ++i) {
      const LoopNode &n = spec.nodes[i];
      if (n.op == LoopOp::ReduceCols || n.op == LoopOp::ArgMaxCols || n.op == LoopOp::ArgMinCols) {
        for (int64_t row = 0; row < rows; ++row) {
          const Cell *x = &values[n.args[0]][row * cols];
          Cell result = n.op == LoopOp::ReduceCols ? sumOfLanes(n, x) : bestOf(n, x);
          for (int64_t c = 0; c < cols; ++c)
            values[i][row * cols + c] = result;
        }
        continue;
      }
      if (n.op == LoopOp::ReduceChain) {
        for (int64_t c = 0; c < cols; ++c) {
          Cell start = n.reduce == LoopReduce::Sum ? make(n.elem, 0) : neutral(n.reduce, n.elem);
          Cell sum = n.hasInit ? read(before[n.view.buffer], number(n.view.offset, n.view.strides, places[c]), n.elem)
                               : start;
          auto add = [&](Cell &to, Cell x) { to = apply(reducer(n.reduce), n.elem, n.elem, to, x, Cell()); };
          Cell block = start;
          for (int64_t row = 0; row < rows; ++row) {
            add(spec.blockRows ? block : sum, values[n.args[0]][row * cols + c]);
            if (endsBlock(row, rows)) {
              add(sum, block);
              block = start;
            }
          }
          for (int64_t row = 0; row < rows; ++row)
            values[i][row * cols + c] = sum;
        }
        continue;
      }
      for (int64_t e = 0; e < rows * cols; ++e)
        values[i][e] = evaluate(n, places[e], values, e);
    }
    for (const LoopStore &store : spec.stores)
      for (int64_t e = 0; e < rows * cols; ++e)
        write(after[store.view.buffer], number(store.view.offset, store.view.strides, places[e]),
              spec.nodes[store.node].elem, values[store.node][e]);
    if (!spec.addAt.present)
      return;
    Elem elem = spec.nodes[spec.addAt.node].elem;
    std::map<int64_t, Cell> block;
    for (int64_t e = 0; e < rows * cols; ++e) {
      int64_t at = number(spec.addAt.view.offset, spec.addAt.view.strides, places[e]);
      for (size_t k = 0; k < spec.addAt.args.size(); ++k)
        at += values[spec.addAt.args[k]][e].i32 * spec.addAt.atStrides[k];
      auto &memory = after[spec.addAt.view.buffer];
      auto addTo = [&](int64_t place, Cell x) {
        write(memory, place, elem, apply(LoopOp::Add, elem, elem, read(memory, place, elem), x, Cell()));
      };
      if (!spec.blockRows) {
        addTo(at, values[spec.addAt.node][e]);
        continue;
      }
      Cell &sum = block.try_emplace(at, make(elem, 0)).first->second;
      sum = apply(LoopOp::Add, elem, elem, sum, values[spec.addAt.node][e], Cell());
      if (e % cols == cols - 1 && endsBlock(e / cols, rows)) {
        for (auto &[place, x] : block)
          addTo(place, x);
        block.clear();
      }
    }
  }

  // Where chains go on in blocks: whether one ends behind this row of all the chain's.
  bool endsBlock(int64_t row, int64_t rows) const {
    return spec.blockRows && (row + 1) % spec.blockRows == 0;
  }

  Cell sumOfLanes(const LoopNode &n, const Cell *x) {
    std::array<Cell, 16> lanes;
    lanes.fill(neutral(n.reduce, n.elem));
    for (int64_t c = 0; c < spec.cols; ++c)
      lanes[c % 16] = apply(reducer(n.reduce), n.elem, n.elem, lanes[c % 16], x[c], Cell());
    for (int width = 8; width > 0; width /= 2)
      for (int l = 0; l < width; ++l)
        lanes[l] = apply(reducer(n.reduce), n.elem, n.elem, lanes[l], lanes[l + width], Cell());
    return lanes[0];
  }

  Cell bestOf(const LoopNode &n, const Cell *x) {
    Elem elem = spec.nodes[n.args[0]].elem;
    auto value = [&](int64_t c) { return elem == Elem::F32 ? x[c].f32 : elem == Elem::F64 ? x[c].f64 : x[c].i32; };
    int64_t best = 0;
    for (int64_t c = 0; c < spec.cols; ++c) {
      double v = value(c), b = value(best);
      if (v != v) {
        best = c; // the first NaN
        break;
      }
      if (n.op == LoopOp::ArgMaxCols ? v > b : v < b)
        best = c;
    }
    return make(Elem::I32, double(best));
  }

  Cell evaluate(const LoopNode &n, const Place &p, const std::vector<std::vector<Cell>> &values, int64_t e) {
    switch (n.op) {
    case LoopOp::Load: return read(before[n.view.buffer], number(n.view.offset, n.view.strides, p), n.elem);
    case LoopOp::LoadAt: {
      int64_t at = number(n.view.offset, n.view.strides, p);
      for (size_t k = 0; k < n.args.size(); ++k)
        at += values[n.args[k]][e].i32 * n.atStrides[k];
      return read(before[n.view.buffer], at, n.elem);
    }
    case LoopOp::Const: {
      double value = n.number;
      if (n.numberWord >= 0)
        std::memcpy(&value, &keyWords[n.numberWord], 8);
      return make(n.elem, value);
    }
    case LoopOp::Index: return make(Elem::I32, double(number(n.view.offset, n.view.strides, p)));
    case LoopOp::Step: return make(n.elem, double(context[kStep]));
    case LoopOp::TotalSteps: return make(n.elem, double(context[kTotalSteps]));
    case LoopOp::RunValue: {
      double value;
      std::memcpy(&value, context + kRunValues + int64_t(n.number), 8);
      return make(n.elem, value);
    }
    case LoopOp::RandomUniform:
    case LoopOp::RandomNormal:
    case LoopOp::RandomInt:
    case LoopOp::RandomBool:
      return draw(n, p);
    default: break;
    }
    Cell args[3];
    for (size_t k = 0; k < n.args.size(); ++k)
      args[k] = values[n.args[k]][e];
    return apply(n.op, spec.nodes[n.args[0]].elem, n.elem, args[0], args[1], args[2]);
  }

  const LoopSpec &spec;
  const std::vector<std::vector<char>> &before;
  std::vector<std::vector<char>> after;
  const int64_t *context;
  std::vector<int64_t> keyWords;
};

} // namespace cinch::test
#endif
