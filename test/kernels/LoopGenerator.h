// LoopGenerator.h: random loop kernels with memory to run them on, for comparing generated code with the interpreter.
#ifndef CINCH_TEST_KERNELS_LOOPGENERATOR_H
#define CINCH_TEST_KERNELS_LOOPGENERATOR_H

#include "compiler/kernels/LoopPlan.h"
#include "test/kernels/LoopReference.h"
#include "test/kernels/RowKernels.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace cinch::test {

using namespace cinch::kernels;

// A spec with memory to run it on.
struct LoopCase {
  std::string name;
  LoopSpec spec;
  std::vector<Elem> elems;                 // of the buffers
  std::vector<std::vector<char>> memory;
  int64_t context[kContextWords] = {17, 5, int64_t(0x9876543212345678), 123, 7};
  std::vector<int64_t> keyWords = {0x7123456789abcdef, 5, 0x3fe6666666666666, 19661}; // two keys, 0.7, 0.3 of 65536
};

class LoopGenerator {
public:
  explicit LoopGenerator(uint64_t seed) : random(seed) {}

  LoopCase next(int number) {
    c = LoopCase();
    c.name = "random" + std::to_string(number);
    chooseDomain();
    return fill();
  }

  // Rows of few columns that lie side by side, and are walked as one.
  LoopCase narrow(int number) {
    static const int64_t columns[] = {2, 4, 8, 16}, rows[] = {2, 3, 4, 5, 8, 9, 40};
    interleaved = true;
    do {
      c = LoopCase();
      c.name = "narrow" + std::to_string(number);
      chooseDomain();
      c.spec.outer.push_back(rows[below(7)]);
      c.spec.cols = columns[below(4)];
      fill();
    } while (planLoop(c.spec).rowColumns == 0);
    interleaved = false;
    return c;
  }

  LoopCase fill() {
    int loads = 1 + below(4), ops = 2 + below(12);
    for (int i = 0; i < loads; ++i)
      addLoad();
    for (int i = 0; i < ops; ++i)
      addOperation();
    if (below(4) == 0)
      addConcat();
    int stores = 1 + below(3);
    for (int i = 0; i < stores; ++i)
      addStore(below(3) ? int(c.spec.nodes.size()) - 1 - below(3) : below(int(c.spec.nodes.size())));
    return c;
  }

  LoopCase addAt(int number) {
    c = LoopCase();
    c.name = "addAt" + std::to_string(number);
    chooseDomain();
    const int64_t places = 7;
    bool full = below(3) == 0;
    int index = addLoadOf(Elem::I32, full ? Level::Full : Level::Row, int(places));
    int value = addLoadOf(Elem::F32, Level::Full);
    c.spec.nodes.push_back(unary(LoopOp::Exp, value));
    c.spec.addAt.present = true;
    c.spec.addAt.node = int(c.spec.nodes.size()) - 1;
    c.spec.addAt.args = {index};
    // dst[place, outer.., column]
    View view = dense(Elem::F32, Level::Column);
    int64_t size = elements(Level::Column);
    c.spec.addAt.atStrides = {size};
    c.spec.addAt.atSizes = {places};
    view.buffer = newBuffer(Elem::F32, size * places);
    c.spec.addAt.view = view;
    return c;
  }

  // A kernel of a training program.
  LoopCase row(const RowKernel &kernel, int labels) {
    c = LoopCase();
    c.name = kernel.name;
    for (size_t i = 0; i < kernel.writer.elements.size(); ++i)
      newBuffer(kernel.writer.elems[i], kernel.writer.elements[i], labels);
    c.spec = kernel.writer.spec;
    return c;
  }

  int below(int n) { return int(random() % uint64_t(n)); }

private:
  void chooseDomain() {
    static const int64_t sizes[] = {1, 2, 3, 5}, chainSizes[] = {1, 2, 3, 5, 4, 6};
    static const int64_t columns[] = {1, 1, 2, 7, 15, 16, 17, 31, 32, 33, 48, 64, 70, 100, 128, 131, 200, 515, 1100};
    for (int i = below(3); i-- > 0;)
      c.spec.outer.push_back(sizes[below(4)]);
    for (int i = below(3); i-- > 0;)
      c.spec.chain.push_back(chainSizes[below(6)]);
    int64_t rows = 1;
    for (int64_t extent : c.spec.chain)
      rows *= extent;
    if (!c.spec.chain.empty() && below(3) == 0)
      for (c.spec.blockRows = 1 + below(int(rows)); rows % c.spec.blockRows != 0;)
        --c.spec.blockRows;
    c.spec.cols = columns[below(19)];
  }

  bool walks(Level level, size_t dim) const {
    size_t outer = c.spec.outer.size(), rank = outer + c.spec.chain.size();
    if (dim < outer)
      return true;
    return dim < rank ? level == Level::Row || level == Level::Full : level == Level::Column || level == Level::Full;
  }
  std::vector<int64_t> extents() const {
    std::vector<int64_t> all = c.spec.outer;
    all.insert(all.end(), c.spec.chain.begin(), c.spec.chain.end());
    all.push_back(c.spec.cols);
    return all;
  }
  int64_t elements(Level level) const {
    auto dims = extents();
    int64_t count = 1;
    for (size_t i = 0; i < dims.size(); ++i)
      count *= walks(level, i) ? dims[i] : 1;
    return count;
  }
  // A dense view of a level; now and then with its dims in another order, broadcast along one, or reversed.
  View dense(Elem elem, Level level, bool loads = false) {
    auto dims = extents();
    std::vector<size_t> order;
    for (size_t i = 0; i < dims.size(); ++i)
      if (walks(level, i))
        order.push_back(i);
    if (below(5) == 0)
      std::shuffle(order.begin(), order.end(), random);
    else if (interleaved) // the last outer dim beside the columns
      if (auto last = std::find(order.begin(), order.end(), c.spec.outer.size() - 1); last != order.end())
        std::rotate(last, last + 1, order.back() == dims.size() - 1 ? order.end() - 1 : order.end());
    View view;
    view.elem = elem;
    view.strides.assign(dims.size(), 0);
    int64_t stride = 1;
    for (size_t k = order.size(); k-- > 0;) {
      size_t i = order[k];
      if (loads && below(10) == 0)
        continue;
      view.strides[i] = stride;
      stride *= dims[i];
      if (loads && below(12) == 0) {
        view.offset += view.strides[i] * (dims[i] - 1);
        view.strides[i] = -view.strides[i];
      }
    }
    return view;
  }

  int newBuffer(Elem elem, int64_t count, int belowNumber = 0) {
    std::vector<char> bytes(count * bytesOf(elem));
    for (int64_t i = 0; i < count; ++i) {
      double x = std::normal_distribution<double>(0, 2)(random);
      if (below(40) == 0) {
        static const double special[] = {0.0, -0.0, 1e38, -1e-42, 90, -110, INFINITY, -INFINITY, NAN, 1};
        x = special[below(10)];
      }
      float single = float(x);
      int32_t whole = belowNumber ? below(belowNumber) : below(200) - 100;
      if (elem == Elem::F64)
        std::memcpy(&bytes[8 * i], &x, 8);
      else if (elem == Elem::Bool)
        bytes[i] = char(below(2));
      else
        std::memcpy(&bytes[4 * i], elem == Elem::F32 ? static_cast<void *>(&single) : &whole, 4);
    }
    c.elems.push_back(elem);
    c.memory.push_back(bytes);
    return int(c.memory.size()) - 1;
  }

  int addLoadOf(Elem elem, Level level, int belowNumber = 0) {
    LoopNode node;
    node.op = LoopOp::Load;
    node.elem = elem;
    node.level = level;
    node.view = dense(elem, level, true);
    node.view.buffer = newBuffer(elem, elements(level), belowNumber);
    c.spec.nodes.push_back(node);
    return int(c.spec.nodes.size()) - 1;
  }
  void addLoad() {
    static const Elem elems[] = {Elem::F32, Elem::F32, Elem::F32, Elem::F64, Elem::I32, Elem::Bool};
    addLoadOf(elems[below(6)], anyLevel());
  }
  Level anyLevel() {
    static const Level levels[] = {Level::Full, Level::Full, Level::Full, Level::Row, Level::Column, Level::Outer};
    return levels[below(6)];
  }
  Level levelOf(int node) const { return levels[node]; }

  LoopNode unary(LoopOp op, int arg) {
    LoopNode node;
    node.op = op;
    node.elem = c.spec.nodes[arg].elem;
    node.args = {arg};
    return node;
  }
  int pick(bool (*suits)(Elem)) {
    for (int tries = 0; tries < 20; ++tries) {
      int n = below(int(c.spec.nodes.size()));
      if (suits(c.spec.nodes[n].elem))
        return n;
    }
    LoopNode node; // a constant always suits
    node.elem = suits(Elem::F32) ? Elem::F32 : suits(Elem::Bool) ? Elem::Bool : Elem::I32;
    node.number = 1;
    c.spec.nodes.push_back(node);
    return int(c.spec.nodes.size()) - 1;
  }
  static bool isFloat(Elem e) { return e == Elem::F32 || e == Elem::F64; }
  static bool isNumber(Elem e) { return e != Elem::Bool; }
  static bool isBool(Elem e) { return e == Elem::Bool; }
  static bool isI32(Elem e) { return e == Elem::I32; }
  int sameElem(int as) {
    for (int tries = 0; tries < 30; ++tries) {
      int n = below(int(c.spec.nodes.size()));
      if (c.spec.nodes[n].elem == c.spec.nodes[as].elem)
        return n;
    }
    return as;
  }

  void addOperation() {
    LoopNode node;
    switch (below(15)) {
    case 0: case 1: {
      std::vector<LoopOp> ops;
#define FORMULA(KIND, FUNCTION, OPERANDS, WEIGHT)                                                                      \
  if (OPERANDS == 1)                                                                                                   \
    ops.push_back(LoopOp::KIND);
#include "dialects/ops/Ops.inc"
      node = unary(ops[below(int(ops.size()))], pick(isFloat));
      break;
    }
    case 2: case 3: case 4: {
      static const LoopOp ops[] = {LoopOp::Add, LoopOp::Sub, LoopOp::Mul, LoopOp::Max, LoopOp::Min, LoopOp::Fma};
      int x = pick(isNumber);
      node = unary(ops[below(6)], x);
      node.args.push_back(sameElem(x));
      if (node.op == LoopOp::Fma)
        node.args.push_back(sameElem(x));
      break;
    }
    case 5: {
      int x = pick(isFloat);
      node = unary(below(4) ? LoopOp::Div : LoopOp::Pow, x);
      node.args.push_back(sameElem(x));
      break;
    }
    case 6: {
      static const LoopOp ops[] = {LoopOp::CompareEQ, LoopOp::CompareNE, LoopOp::CompareLT,
                                   LoopOp::CompareLE, LoopOp::CompareGT, LoopOp::CompareGE};
      int x = pick(isNumber);
      node = unary(ops[below(6)], x);
      node.args.push_back(sameElem(x));
      node.elem = Elem::Bool;
      break;
    }
    case 7: {
      int x = pick(isBool);
      static const LoopOp ops[] = {LoopOp::Not, LoopOp::And, LoopOp::Or};
      node = unary(ops[below(3)], x);
      if (node.op != LoopOp::Not)
        node.args.push_back(sameElem(x));
      break;
    }
    case 8: {
      int m = pick(isBool), x = pick(isNumber);
      node = unary(LoopOp::Select, x);
      node.args = {m, x, sameElem(x)};
      break;
    }
    case 9: {
      static const Elem elems[] = {Elem::F32, Elem::F64, Elem::I32, Elem::Bool};
      node = unary(LoopOp::Cast, below(int(c.spec.nodes.size())));
      node.elem = elems[below(4)];
      break;
    }
    case 10: case 11: {
      bool cols = below(2);
      int x = below(8) ? pick(isNumber) : pick(isBool);
      node = unary(cols ? LoopOp::ReduceCols : LoopOp::ReduceChain, x);
      bool flags = c.spec.nodes[x].elem == Elem::Bool;
      static const LoopReduce numbers[] = {LoopReduce::Sum, LoopReduce::Sum, LoopReduce::Max, LoopReduce::Min,
                                           LoopReduce::Prod};
      node.reduce = flags ? (below(2) ? LoopReduce::Any : LoopReduce::All) : numbers[below(5)];
      if (!cols && below(3) == 0) {
        node.hasInit = true;
        Level level = below(3) ? Level::Column : Level::Outer;
        node.view = dense(node.elem, level, true);
        node.view.buffer = newBuffer(node.elem, elements(level));
      }
      break;
    }
    case 12: {
      node = unary(below(2) ? LoopOp::ArgMaxCols : LoopOp::ArgMinCols, pick(isNumber));
      node.elem = Elem::I32;
      break;
    }
    case 13: {
      static const LoopOp ops[] = {LoopOp::RandomBool, LoopOp::RandomUniform, LoopOp::RandomNormal, LoopOp::RandomInt};
      node.op = ops[below(4)];
      node.elem = node.op == LoopOp::RandomBool ? Elem::Bool : node.op == LoopOp::RandomInt ? Elem::I32
                  : below(3)                    ? Elem::F32
                                                : Elem::F64;
      node.level = anyLevel();
      node.view = dense(node.elem, node.level, true);
      node.view.offset += below(300);
      node.number = node.op == LoopOp::RandomInt ? 1000 : 0.3;
      node.key = random();
      node.keyWord = below(3) - 1;
      node.numberWord = node.op == LoopOp::RandomBool && below(2) ? 3 : -1;
      node.positionStride = below(2) ? below(50) : 0;
      auto dims = extents();
      node.exampleStrides.assign(dims.size(), 0);
      node.usesExample = below(2);
      if (node.usesExample)
        node.exampleStrides[below(int(dims.size()))] = 1 + below(2);
      for (size_t i = 0; i < dims.size(); ++i)
        if (!walks(node.level, i))
          node.exampleStrides[i] = 0;
      break;
    }
    default: {
      static const LoopOp ops[] = {LoopOp::Const, LoopOp::Index, LoopOp::Step, LoopOp::TotalSteps, LoopOp::LoadAt,
                                   LoopOp::LoadAt, LoopOp::RunValue};
      node.op = ops[below(7)];
      if (node.op == LoopOp::Const) {
        node.elem = below(3) ? Elem::F32 : Elem::I32;
        node.number = below(7) - 3;
        node.numberWord = node.elem == Elem::F32 && below(2) ? 2 : -1;
      } else if (node.op == LoopOp::Step || node.op == LoopOp::TotalSteps) {
        node.elem = below(2) ? Elem::F64 : Elem::I32;
      } else if (node.op == LoopOp::RunValue) {
        node.elem = Elem::F64;
        node.number = below(kContextWords - kRunValues);
      } else if (node.op == LoopOp::Index) {
        node.elem = Elem::I32;
        node.view = dense(Elem::I32, anyLevel(), true);
      } else {
        int index = addLoadOf(Elem::I32, anyLevel(), 9);
        node.elem = below(3) ? Elem::F32 : Elem::I32;
        node.level = anyLevel();
        node.args = {index};
        node.view = dense(node.elem, node.level, true);
        node.atStrides = {elements(node.level)};
        node.view.buffer = newBuffer(node.elem, elements(node.level) * 13);
        if (below(4) == 0) {
          node.args.push_back(addLoadOf(Elem::I32, anyLevel(), 2));
          node.atStrides = {elements(node.level), elements(node.level) * 4};
        }
      }
    }
    }
    c.spec.nodes.push_back(node);
  }

  int constant(Elem elem, double number) {
    LoopNode node;
    node.elem = elem;
    node.number = number;
    c.spec.nodes.push_back(node);
    return int(c.spec.nodes.size()) - 1;
  }
  int binary(LoopOp op, Elem elem, int x, int y) {
    LoopNode node;
    node.op = op;
    node.elem = elem;
    node.args = {x, y};
    c.spec.nodes.push_back(node);
    return int(c.spec.nodes.size()) - 1;
  }

  // Two tensors one behind the other along a dim of the domain, as loads with clamped indices.
  void addConcat() {
    auto dims = extents();
    size_t axis = below(2) ? dims.size() - 1 : size_t(below(int(dims.size())));
    if (dims[axis] < 2)
      return;
    int64_t split = 1 + below(int(dims[axis] - 1));
    LoopNode at;
    at.op = LoopOp::Index;
    at.elem = Elem::I32;
    at.view.strides.assign(dims.size(), 0);
    at.view.strides[axis] = 1;
    c.spec.nodes.push_back(at);
    int index = int(c.spec.nodes.size()) - 1, parts[2];
    for (int part = 0; part < 2; ++part) {
      int64_t shift = part ? split : 0, size = part ? dims[axis] - split : split;
      int moved = shift ? binary(LoopOp::Sub, Elem::I32, index, constant(Elem::I32, double(shift))) : index;
      int low = binary(LoopOp::Max, Elem::I32, moved, constant(Elem::I32, 0));
      int clamped = binary(LoopOp::Min, Elem::I32, low, constant(Elem::I32, double(size - 1)));
      LoopNode load;
      load.op = LoopOp::LoadAt;
      load.args = {clamped};
      load.view.strides.assign(dims.size(), 0);
      int64_t stride = 1;
      for (size_t i = dims.size(); i-- > 0;) {
        if (i == axis)
          load.atStrides = {stride};
        else
          load.view.strides[i] = stride;
        stride *= i == axis ? size : dims[i];
      }
      load.view.buffer = newBuffer(Elem::F32, stride);
      c.spec.nodes.push_back(load);
      parts[part] = int(c.spec.nodes.size()) - 1;
    }
    int before = binary(LoopOp::CompareLT, Elem::Bool, index, constant(Elem::I32, double(split)));
    LoopNode select;
    select.op = LoopOp::Select;
    select.args = {before, parts[0], below(4) ? parts[1] : constant(Elem::F32, 0.5)};
    c.spec.nodes.push_back(select);
  }

  // The level that a node really has, from what it reads.
  void findLevels() {
    levels.clear();
    auto join = [](Level x, Level y) {
      bool row = x == Level::Row || x == Level::Full || y == Level::Row || y == Level::Full;
      bool col = x == Level::Column || x == Level::Full || y == Level::Column || y == Level::Full;
      return row ? (col ? Level::Full : Level::Row) : col ? Level::Column : Level::Outer;
    };
    for (const LoopNode &node : c.spec.nodes) {
      Level level = Level::Outer;
      auto follow = [&](const std::vector<int64_t> &strides) {
        for (size_t i = c.spec.outer.size(); i < strides.size(); ++i)
          if (strides[i] != 0)
            level = join(level, i + 1 == strides.size() ? Level::Column : Level::Row);
      };
      follow(node.view.strides);
      follow(node.exampleStrides);
      for (int arg : node.args)
        level = join(level, levels[size_t(arg)]);
      bool row = level == Level::Row || level == Level::Full, col = level == Level::Column || level == Level::Full;
      if (node.op == LoopOp::ReduceCols || node.op == LoopOp::ArgMaxCols || node.op == LoopOp::ArgMinCols)
        level = row ? Level::Row : Level::Outer;
      if (node.op == LoopOp::ReduceChain)
        level = col ? Level::Column : Level::Outer;
      levels.push_back(level);
    }
  }

  void addStore(int node) {
    node = std::max(node, 0);
    findLevels();
    LoopStore store;
    store.node = node;
    Elem elem = c.spec.nodes[node].elem;
    Level level = levelOf(node);
    if (below(6) == 0)
      level = Level::Full; // a broadcast is written out
    store.view = dense(elem, level);
    // Now and then in place: over a load of the same shape that nothing else reads.
    for (const LoopNode &load : c.spec.nodes) {
      if (load.op != LoopOp::Load || load.elem != elem || below(3) != 0 || load.view.strides != store.view.strides)
        continue;
      bool taken = std::any_of(c.spec.stores.begin(), c.spec.stores.end(),
                               [&](const LoopStore &s) { return s.view.buffer == load.view.buffer; });
      if (!taken && load.view.offset == 0) {
        store.view.buffer = load.view.buffer;
        c.spec.stores.push_back(store);
        return;
      }
    }
    store.view.buffer = newBuffer(elem, elements(level));
    c.spec.stores.push_back(store);
  }

  std::mt19937_64 random;
  bool interleaved = false; // buffers have the last outer dim beside the columns
  LoopCase c;
  std::vector<Level> levels;
};

} // namespace cinch::test
#endif
