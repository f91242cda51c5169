// LINK: kernel_harness
//
// The path from scf and vector to code in this process: a small kernel runs on every CPU kind, what the numbers
// contract forbids is refused.
#include "test/unit/Expect.h"
#include "compiler/kernels/Kernels.h"
#include "compiler/target/Object.h"
#include "test/kernels/KernelHarness.h"

#include "mlir/Parser/Parser.h"
#include <cmath>

using namespace cinch;

// y[i] = fma(x[i], x[i], y[i]) for i < 32; each thread every other block of 16.
static const char *const kSquares = R"(
func.func @squares(%arena: memref<70368744177664xi8>, %offsets: memref<2xi64>, %context: memref<8xi64>,
                   %thread: index, %threads: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
  %xo = memref.load %offsets[%c0] : memref<2xi64>
  %yo = memref.load %offsets[%c1] : memref<2xi64>
  %xi = arith.index_cast %xo : i64 to index
  %yi = arith.index_cast %yo : i64 to index
  %x = memref.view %arena[%xi][] : memref<70368744177664xi8> to memref<32xf32>
  %y = memref.view %arena[%yi][] : memref<70368744177664xi8> to memref<32xf32>
  %first = arith.muli %thread, %c16 : index
  %step = arith.muli %threads, %c16 : index
  scf.for %i = %first to %c32 step %step {
    %a = vector.load %x[%i] : memref<32xf32>, vector<16xf32>
    %b = vector.load %y[%i] : memref<32xf32>, vector<16xf32>
    %r = OPERATION : vector<16xf32>
    vector.store %r, %y[%i] : memref<32xf32>, vector<16xf32>
  }
  return
})";

static std::string squares(const std::string &operation) {
  std::string text = kSquares;
  return text.replace(text.find("OPERATION"), 9, operation);
}

static void parseInto(test::KernelHarness &harness, const std::string &text) {
  mlir::ModuleOp module = harness.module();
  expect(mlir::succeeded(mlir::parseSourceString(text, module.getBody(), module.getContext())), "kernel parses");
}

static void runs(const std::string &cpu, int threads) {
  test::KernelHarness harness(cpu);
  parseInto(harness, squares("math.fma %a, %a, %b"));
  if (!harness.compile()) {
    expect(false, cpu + ": " + harness.error());
    return;
  }
  test::Arena arena;
  int x = arena.add(32 * 4), y = arena.add(32 * 4);
  for (int i = 0; i < 32; ++i) {
    arena.at<float>(x)[i] = 1.1f + float(i);
    arena.at<float>(y)[i] = 0.3f * float(i);
  }
  int64_t context[kernels::kContextWords] = {};
  test::callKernel(harness.lookup("squares"), arena.data(), arena.offsetsOf(), context, threads);
  bool same = true;
  for (int i = 0; i < 32; ++i) {
    float a = 1.1f + float(i);
    same &= arena.at<float>(y)[i] == std::fmaf(a, a, 0.3f * float(i));
  }
  expect(same && arena.guardsIntact(), cpu + ": squares");
  expect(harness.assembly().find("vfmadd") != std::string::npos, cpu + ": the assembly has FMAs");
}

static void refuses(const std::string &operation, const std::string &message) {
  test::KernelHarness harness("haswell");
  parseInto(harness, squares(operation));
  bool compiled = harness.compile();
  expect(!compiled && harness.error().find(message) != std::string::npos,
         "'" + operation + "' is refused with '" + message + "', got: " + harness.error());
}

int main() {
  for (const std::string &cpu : test::runnableCpus())
    for (int threads : {1, 2, 3})
      runs(cpu, threads);
  refuses("vector.fma %a, %a, %b", "expected math.fma");
  refuses("arith.addf %a, %b fastmath<contract>", "fast-math flags");
  refuses("math.exp %a", "mathematical function");
  refuses("math.erf %a", "returns f32");
  expect(target::lanesOf("haswell") == 8 && target::lanesOf("skylake-avx512") == 16, "lanes of known CPUs");
  expect(target::infoOf("cooperlake").dots && target::infoOf("znver4").dots && target::infoOf("sapphirerapids").amx && !target::infoOf("sapphirerapids").dots && !target::infoOf("cooperlake").amx && !target::infoOf("skylake-avx512").dots &&
             !target::infoOf("haswell").dots,
         "CPUs with products of bf16");
  expect(target::lanesOf("nehalem") == 0, "a CPU without fused multiply-add is refused");
  expect(target::lanesOf("no-such-cpu") == 0, "an unknown CPU has no lanes");
  return tally();
}
