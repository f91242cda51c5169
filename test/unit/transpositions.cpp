// LINK: kernel_harness
//
// Copies that exchange dims, alone and with a sum of them and of what lies in the order of the result beside them, against plain loops: any
// order of three dims, sizes around the length of a vector, an axis that is left out or walked backwards, 4-byte elements of both kinds and bf16,
// also rounded or widened on the way, 1 to 3 threads, every CPU kind this machine can run.
//   transpositions [SEED [COUNT]]
#include "compiler/kernels/HostOps.h"
#include "compiler/kernels/LoopPlan.h"
#include "compiler/target/Object.h"
#include "test/kernels/KernelHarness.h"
#include "test/kernels/Random.h"
#include "test/unit/Expect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace cinch;
using namespace cinch::kernels;
using test::Random, test::below;

namespace {

struct Copy {
  LoopSpec spec;
  int64_t source, target; // elements
  // The copy is added to buffer 2, in place, and twice the copy goes to buffer 3.
  bool sums = false;
  Elem from() const { return spec.nodes[0].elem; }
  Elem to() const { return spec.nodes[size_t(spec.stores[0].node)].elem; }
};

// The number that lies at `at`, as the f32 that it stands for.
float read(const char *memory, Elem elem, int64_t at) {
  uint32_t bits = 0;
  if (elem == Elem::BF16)
    std::memcpy(reinterpret_cast<char *>(&bits) + 2, memory + 2 * at, 2);
  else
    std::memcpy(&bits, memory + 4 * at, 4);
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
void write(char *memory, Elem elem, int64_t at, float x) {
  if (elem == Elem::BF16) {
    x = host::roundedToBF16(x);
    std::memcpy(memory + 2 * at, reinterpret_cast<char *>(&x) + 2, 2);
  } else {
    std::memcpy(memory + 4 * at, &x, 4);
  }
}

int32_t plus(Elem elem, int32_t x, int32_t y) {
  if (elem == Elem::I32)
    return x + y;
  float a, b;
  std::memcpy(&a, &x, 4), std::memcpy(&b, &y, 4);
  a += b;
  std::memcpy(&x, &a, 4);
  return x;
}

Copy copyOf(Random &random) {
  static const int64_t sizes[] = {1, 3, 7, 8, 9, 15, 16, 17, 32, 40};
  Copy copy;
  std::vector<int64_t> dims;
  for (int i = 0; i < 4; ++i)
    dims.push_back(i == 0 ? 1 + below(random, 3) : sizes[below(random, 10)]);
  std::vector<size_t> order{0, 1, 2, 3};
  std::shuffle(order.begin(), order.end(), random);
  LoopNode load;
  load.op = LoopOp::Load;
  load.elem = below(random, 3) ? Elem::F32 : Elem::I32;
  load.level = Level::Full;
  load.view = {0, load.elem, below(random, 5), {0, 0, 0, 0}};
  copy.source = load.view.offset;
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    load.view.strides[order[i]] = stride;
    stride *= dims[order[i]] + (below(random, 4) == 0 ? 3 : 0);
  }
  copy.source += stride;
  if (size_t back = size_t(below(random, 6)); back < 4) {
    load.view.offset += load.view.strides[back] * (dims[back] - 1);
    load.view.strides[back] *= -1;
  }
  LoopStore store;
  store.node = 0;
  store.view = {1, load.elem, below(random, 5), {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}};
  copy.target = store.view.offset + dims[0] * dims[1] * dims[2] * dims[3];
  copy.spec.outer = {dims[0], dims[1], dims[2]};
  copy.spec.cols = dims[3];
  copy.spec.nodes = {load};
  copy.spec.stores = {store};
  copy.sums = below(random, 2) == 0;
  if (copy.sums) {
    LoopNode beside = load, sum, twice;
    beside.view = store.view;
    beside.view.buffer = 2;
    sum.op = twice.op = LoopOp::Add;
    sum.elem = twice.elem = load.elem;
    sum.args = {1, 0};
    twice.args = {0, 0};
    copy.spec.nodes = {load, beside, sum, twice};
    copy.spec.stores.push_back({2, beside.view});
    copy.spec.stores.push_back({3, beside.view});
    copy.spec.stores.back().view.buffer = 3;
  } else if (int64_t kind = load.elem == Elem::F32 ? below(random, 5) : 0; kind < 3 && load.elem == Elem::F32) {
    const bool narrowFrom = kind > 0, narrowTo = kind < 2; // rounded, moved as bf16, widened
    LoopNode &from = copy.spec.nodes[0], cast = from;
    from.elem = from.view.elem = narrowFrom ? Elem::BF16 : Elem::F32;
    copy.spec.stores[0].view.elem = narrowTo ? Elem::BF16 : Elem::F32;
    if (narrowFrom != narrowTo) {
      cast = LoopNode();
      cast.op = LoopOp::Cast;
      cast.level = Level::Full;
      cast.elem = copy.spec.stores[0].view.elem;
      cast.args = {0};
      copy.spec.nodes.push_back(cast);
      copy.spec.stores[0].node = 1;
    }
  }
  return copy;
}

void runAll(const std::string &cpu, uint64_t seed, int64_t count) {
  Random random(seed);
  TargetInfo target = target::infoOf(cpu);
  test::KernelHarness harness(cpu);
  auto builder = harness.builder();
  std::vector<Copy> copies;
  int64_t turned = 0;
  for (int64_t i = 0; i < count; ++i) {
    copies.push_back(copyOf(random));
    turned += planLoop(copies.back().spec, target).transposition.found();
    buildLoop(builder, harness.module(), "copy" + std::to_string(i), copies.back().spec, target);
  }
  expect(turned * 10 >= count, cpu + ": a tenth of the copies turn squares: " + std::to_string(turned));
  expect(harness.compile(), cpu + ": " + harness.error());
  for (int64_t i = 0; i < count; ++i) {
    test::KernelFunction function = harness.lookup("copy" + std::to_string(i));
    for (int threads = 1; function && threads <= 3; ++threads) {
      const Copy &copy = copies[i];
      const View &from = copy.spec.nodes[0].view, &to = copy.spec.stores[0].view;
      test::Arena arena;
      arena.add(copy.source * 4);
      for (int i = 0; i < (copy.sums ? 3 : 1); ++i)
        arena.add(copy.target * 4);
      int64_t perThread = scratchBytesPerThread(copy.spec, target);
      arena.add(std::max<int64_t>(64, perThread * threads));
      for (int64_t at = 0; at < copy.source; ++at)
        if (copy.from() == Elem::BF16 || copy.to() == Elem::BF16)
          write(arena.at<char>(0), copy.from(), at, float(at + 7) * 1.0039f);
        else
          arena.at<int32_t>(0)[at] = int32_t(at + 7);
      std::vector<std::vector<int32_t>> expected;
      for (int i = 1; i <= (copy.sums ? 3 : 1); ++i) {
        for (int64_t at = 0; at < copy.target; ++at)
          arena.at<int32_t>(i)[at] = int32_t(3 * at + i);
        expected.emplace_back(arena.at<int32_t>(i), arena.at<int32_t>(i) + copy.target);
      }
      for (int64_t a = 0; a < copy.spec.outer[0]; ++a)
        for (int64_t b = 0; b < copy.spec.outer[1]; ++b)
          for (int64_t c = 0; c < copy.spec.outer[2]; ++c)
            for (int64_t d = 0; d < copy.spec.cols; ++d) {
              auto at = [&](const View &view) {
                return view.offset + a * view.strides[0] + b * view.strides[1] + c * view.strides[2] + d * view.strides[3];
              };
              if (copy.from() == Elem::BF16 || copy.to() == Elem::BF16) {
                write(reinterpret_cast<char *>(expected[0].data()), copy.to(), at(to), read(arena.at<char>(0), copy.from(), at(from)));
                continue;
              }
              int32_t value = expected[0][at(to)] = arena.at<int32_t>(0)[at(from)];
              if (copy.sums) {
                expected[1][at(to)] = plus(from.elem, expected[1][at(to)], value);
                expected[2][at(to)] = plus(from.elem, value, value);
              }
            }
      int64_t context[kContextWords] = {};
      test::callKernel(function, arena.data(), arena.offsetsOf(), context, threads);
      bool same = true;
      for (size_t i = 0; i < expected.size(); ++i)
        same = same && std::equal(expected[i].begin(), expected[i].end(), arena.at<int32_t>(int(i) + 1));
      expect(same && arena.guardsIntact(), cpu + ", copy " + std::to_string(i) + ", " + std::to_string(threads) + " threads");
    }
  }
}

} // namespace

int main(int argc, char **argv) {
  uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  int64_t count = argc > 2 ? std::strtoll(argv[2], nullptr, 10) : 90;
  for (const std::string &cpu : test::runnableCpus())
    runAll(cpu, seed, count);
  return tally();
}
