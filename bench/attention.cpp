// attention.cpp: streaming attention, forward and backward, beside the product kernel's speed: one thread, alternating
// rounds.
//
//   bench_attention [--cpu NAME] [--rounds N]
//
// Operations are counted as the mathematics needs them (4 T S K forward, 10 T S K backward, half of it under a causal
// mask); the share is of the operations a second that a 512^3 product reaches in the same round.
#include "bench/harness/Timing.h"
#include "compiler/kernels/Kernels.h"
#include "compiler/target/Object.h"
#include "test/kernels/KernelHarness.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace cinch;
using bench::now;
using bench::median;
using namespace cinch::kernels;

struct Shape {
  int64_t heads, positions, features;
  bool causal;
  double dropout;
};

static const Shape shapes[] = {{6, 256, 64, false, 0},  {6, 256, 64, true, 0},  {6, 256, 64, true, 0.1},
                               {2, 1024, 64, false, 0}, {2, 1024, 64, true, 0}, {2, 1024, 64, true, 0.1},
                               {4, 512, 32, true, 0},   {2, 512, 128, true, 0}};

// q, k, v as one product left them, [position, 3, head, feature]; results [position, head, feature].
static AttendGradSpec specOf(const Shape &shape) {
  AttendGradSpec grad;
  AttendSpec &spec = grad.forward;
  spec.lead = {1};
  spec.batchDim = 0;
  spec.A = spec.G = shape.heads;
  spec.T = spec.S = shape.positions;
  spec.K = spec.E = shape.features;
  spec.causal = shape.causal;
  spec.dropout = shape.dropout;
  spec.scale = 1 / std::sqrt(double(shape.features));
  int64_t row = shape.heads * shape.features;
  auto view = [&](int buffer, int64_t parts, int64_t part) {
    View result;
    result.buffer = buffer;
    result.offset = part * row;
    result.strides = {parts * row * shape.positions, shape.features, parts * row, 1};
    return result;
  };
  spec.q = view(0, 3, 0), spec.k = view(0, 3, 1), spec.v = view(0, 3, 2);
  spec.o = view(1, 1, 0);
  spec.lse.buffer = 2;
  spec.lse.strides = {shape.heads * shape.positions, shape.positions, 1};
  grad.dout = view(3, 1, 0);
  grad.dq = view(4, 3, 0), grad.dk = view(4, 3, 1), grad.dv = view(4, 3, 2);
  return grad;
}

static ContractSpec yardstick() {
  ContractSpec spec;
  spec.m = spec.n = spec.k = {512};
  spec.a.buffer = 0, spec.b.buffer = 1, spec.c.buffer = 2;
  spec.a.strides = spec.b.strides = spec.c.strides = {512, 1};
  return spec;
}

int main(int argc, char **argv) {
  std::string cpu = "native";
  int rounds = 9;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!std::strcmp(argv[i], "--cpu"))
      cpu = argv[i + 1];
    else if (!std::strcmp(argv[i], "--rounds"))
      rounds = std::max(1, std::atoi(argv[i + 1]));
  }
  TargetInfo target = target::infoOf(cpu);
  std::printf("%5s %5s %4s %7s %8s | %10s %6s | %10s %6s\n", "heads", "T", "K", "causal", "dropout", "forward ms",
              "share", "backward ms", "share");
  double logForward = 0, logBackward = 0;
  for (const Shape &shape : shapes) {
    test::KernelHarness harness(cpu);
    mlir::OpBuilder builder = harness.builder();
    AttendGradSpec grad = specOf(shape);
    buildAttend(builder, harness.module(), "forward", grad.forward, target);
    buildAttendGrad(builder, harness.module(), "backward", grad, target);
    buildContract(builder, harness.module(), "product", yardstick(), target);
    if (!harness.compile()) {
      std::fprintf(stderr, "%s\n", harness.error().c_str());
      return 1;
    }
    int64_t row = shape.heads * shape.features * shape.positions * 4;
    test::Arena arena, square;
    for (int64_t bytes : {3 * row, row, shape.heads * shape.positions * 4, row, 3 * row})
      arena.add(bytes);
    arena.add(std::max(scratchBytesPerThread(grad), scratchBytesPerThread(grad.forward)));
    for (int i = 0; i < 3; ++i)
      square.add(512 * 512 * 4);
    square.add(scratchBytesPerThread(yardstick(), target));
    for (int64_t i = 0; i < 3 * row / 4; ++i)
      arena.at<float>(0)[i] = float(i * 7919 % 2001 - 1000) / 1000;
    for (int64_t i = 0; i < row / 4; ++i)
      arena.at<float>(3)[i] = float(i * 104729 % 2001 - 1000) / 1000;
    std::memset(square.at<char>(0), 0, 512 * 512 * 4);
    std::memset(square.at<char>(1), 0, 512 * 512 * 4);
    const int64_t *o = arena.offsetsOf();
    int64_t context[kContextWords] = {0, 0, 1}, forwardOffsets[] = {o[0], o[1], o[2], o[5]};
    auto forward = harness.lookup("forward"), backward = harness.lookup("backward"),
         product = harness.lookup("product");
    std::vector<double> forwardTime, backwardTime, forwardShare, backwardShare;
    double pairs = double(shape.positions) * double(shape.positions + (shape.causal ? 1 : 0)) / (shape.causal ? 2 : 1);
    double unit = 2 * double(shape.heads * shape.features) * pairs;
    for (int round = 0; round < rounds; ++round) {
      double times[4] = {now()};
      forward(arena.data(), forwardOffsets, context, 0, 1);
      times[1] = now();
      backward(arena.data(), o, context, 0, 1);
      times[2] = now();
      product(square.data(), square.offsetsOf(), context, 0, 1);
      times[3] = now();
      double speed = 2 * 512.0 * 512 * 512 / (times[3] - times[2]);
      forwardTime.push_back(times[1] - times[0]);
      backwardTime.push_back(times[2] - times[1]);
      forwardShare.push_back(2 * unit / forwardTime.back() / speed);
      backwardShare.push_back(5 * unit / backwardTime.back() / speed);
    }
    std::printf("%5lld %5lld %4lld %7s %8g | %10.3f %6.2f | %10.3f  %6.2f\n", (long long)shape.heads,
                (long long)shape.positions, (long long)shape.features, shape.causal ? "yes" : "no", shape.dropout,
                median(forwardTime) * 1e3, median(forwardShare), median(backwardTime) * 1e3, median(backwardShare));
    logForward += std::log(median(forwardShare));
    logBackward += std::log(median(backwardShare));
  }
  double count = sizeof(shapes) / sizeof(*shapes);
  std::printf("RESULT attention.forward_share %.3f\n", std::exp(logForward / count));
  std::printf("RESULT attention.backward_share %.3f\n", std::exp(logBackward / count));
}
