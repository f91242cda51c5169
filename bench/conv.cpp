// conv.cpp: generated convolution kernels beside oneDNN's, forward, data gradient and weight gradient, one thread, alternating rounds
// in one process.
//
//   bench_conv [--cpu NAME] [--batch N] [--rounds N] [--direct] [FILTER]
//
// Images lie channels last on both sides. oneDNN chooses the order of its filters, and what it takes to bring them into that order
// is not counted; our packing is part of our time. A row's ratio is the median over the rounds of (oneDNN's time / ours): above 1
// ours is faster. With an AVX2 CPU oneDNN is held to AVX2, too. Ours are by Winograd's minimal filtering where the compiler takes it, and with
// --direct nowhere; oneDNN's are direct ones, as PyTorch's are. Rates count the operations of the definition.
#include "compiler/analysis/Specs.h"
#include "compiler/target/Object.h"
#include "compiler/transforms/ChooseWinograd.h"
#include "test/kernels/KernelHarness.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <dnnl.hpp>
#include <omp.h>
#include <unordered_map>

using namespace cinch;

namespace {

int64_t batch = 4;
bool winograd = true; // where the compiler takes it

struct Layer {
  const char *name;
  int64_t in, size, out, window, stride = 1, groups = 1, dilate = 1;

  int64_t pad() const { return dilate * (window - 1) / 2; }
  int64_t places() const { return (size + 2 * pad() - dilate * (window - 1) - 1) / stride + 1; }
  int64_t imageCount() const { return batch * size * size * in; }
  int64_t filterCount() const { return window * window * in / groups * out; }
  int64_t outputCount() const { return batch * places() * places() * out; }
  double flops() const { return 2.0 * double(outputCount()) * double(window * window * in / groups); }
};

const Layer layers[] = {
    {"first 7x7/2", 3, 224, 64, 7, 2},
    {"1x1 64", 64, 56, 64, 1},
    {"3x3 64", 64, 56, 64, 3},
    {"1x1 widens", 64, 56, 256, 1},
    {"1x1 narrows", 256, 56, 64, 1},
    {"3x3/2 128", 128, 56, 128, 3, 2},
    {"3x3 128", 128, 28, 128, 3},
    {"1x1 512", 512, 28, 128, 1},
    {"1x1/2 projection", 512, 28, 1024, 1, 2},
    {"3x3 256", 256, 14, 256, 3},
    {"1x1 1024", 1024, 14, 256, 1},
    {"3x3/2 512", 512, 14, 512, 3, 2},
    {"3x3 512", 512, 7, 512, 3},
    {"first of 32x32", 3, 32, 64, 3},
    {"16 channels", 16, 64, 16, 3},
    {"depthwise 32", 32, 112, 32, 3, 1, 32},
    {"depthwise/2 144", 144, 56, 144, 3, 2, 144},
    {"depthwise 512", 512, 14, 512, 3, 1, 512},
    {"32 groups of 4", 128, 28, 128, 3, 1, 32},
    {"dilated 3x3", 128, 28, 128, 3, 1, 1, 2},
    {"1 channel 5x5", 1, 28, 32, 5},
    {"small 3x3 64", 64, 32, 64, 3},
    {"small 3x3 128", 128, 16, 128, 3},
    {"small 3x3 256", 256, 8, 256, 3},
    {"small 3x3 512", 512, 4, 512, 3},
};

enum class Gives { Output, Image, Filter };
const char *const kNames[] = {"output", "image", "filter"};

// Processor time of this thread, in which both sides run: other load on the machine takes none of it.
double now() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <class Call> double timeOf(int repeats, Call call) {
  double start = now();
  for (int i = 0; i < repeats; ++i)
    call();
  return (now() - start) / repeats;
}

// ---- Ours: the op as text, its spec, its kernel. Buffers 0 and 1 are the operands, 2 is the result.
std::string textOf(const Layer &l, Gives gives) {
  auto image = "tensor<" + std::to_string(batch) + "x" + std::to_string(l.size) + "x" + std::to_string(l.size) + "x" +
               std::to_string(l.in) + "xf32, #nn.batch<0>>";
  auto output = "tensor<" + std::to_string(batch) + "x" + std::to_string(l.places()) + "x" + std::to_string(l.places()) + "x" +
                std::to_string(l.out) + "xf32, #nn.batch<0>>";
  auto filter = "tensor<" + std::to_string(l.window) + "x" + std::to_string(l.window) + "x" + std::to_string(l.in / l.groups) + "x" +
                std::to_string(l.out) + "xf32>";
  std::string a = gives == Gives::Image ? output : image, b = gives == Gives::Filter ? output : filter;
  std::string c = gives == Gives::Output ? output : gives == Gives::Image ? image : filter;
  auto pair = [](int64_t n) { return "[" + std::to_string(n) + ", " + std::to_string(n) + "]"; };
  return "func.func @f(%a: " + a + ", %b: " + b + ") -> " + c + " {\n  %c = nn.conv " + kNames[int(gives)] + " %a, %b stride " +
         pair(l.stride) + " pad " + pair(l.pad()) + " dilate " + pair(l.dilate) +
         (l.groups > 1 ? " groups " + std::to_string(l.groups) : "") + " : (" + a + ", " + b + ") -> " + c +
         "\n  return %c : " + c + "\n}\n";
}

bool specOf(const Layer &layer, Gives gives, kernels::ConvSpec &spec) {
  mlir::MLIRContext context;
  context.loadDialect<nn::NNDialect, mlir::func::FuncDialect>();
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::parseSourceString<mlir::ModuleOp>(textOf(layer, gives), &context);
  if (!module)
    return false;
  if (winograd)
    chooseWinograd(*module);
  bool found = false;
  module->walk([&](nn::ConvOp op) {
    auto bufferOf = [&](mlir::Value value) { return value == op.getLhs() ? 0 : value == op.getRhs() ? 1 : 2; };
    mlir::Value blocker;
    found = analysis::convSpec(op, bufferOf, false, spec, blocker);
  });
  return found;
}

// ---- Theirs
class OneDnn {
public:
  OneDnn(const Layer &l, Gives gives, float *image, float *filter, float *output) : engine(dnnl::engine::kind::cpu, 0), stream(engine) {
    using namespace dnnl;
    using dims = memory::dims;
    using tag = memory::format_tag;
    auto f32 = memory::data_type::f32;
    dims of = l.groups > 1 ? dims{l.groups, l.out / l.groups, l.in / l.groups, l.window, l.window} : dims{l.out, l.in, l.window, l.window};
    memory::desc x({batch, l.in, l.size, l.size}, f32, tag::nhwc), y({batch, l.out, l.places(), l.places()}, f32, tag::nhwc);
    memory::desc any(of, f32, tag::any), plain(of, f32, l.groups > 1 ? tag::hwigo : tag::hwio);
    dims stride{l.stride, l.stride}, pad{l.pad(), l.pad()}, dilate{l.dilate - 1, l.dilate - 1};
    auto direct = algorithm::convolution_direct;
    convolution_forward::primitive_desc forward({prop_kind::forward_training, direct, x, any, y, stride, dilate, pad, pad}, engine);
    memory mx(x, engine, image), my(y, engine, output), mine(plain, engine, filter);
    args = {{gives == Gives::Image ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, mx}, {gives == Gives::Output ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, my}};
    if (gives == Gives::Output) {
      primitive = convolution_forward(forward);
      takeFilter(mine, forward.weights_desc());
    } else if (gives == Gives::Image) {
      convolution_backward_data::primitive_desc desc({direct, x, any, y, stride, dilate, pad, pad}, engine, forward);
      primitive = convolution_backward_data(desc);
      takeFilter(mine, desc.weights_desc());
    } else {
      convolution_backward_weights::primitive_desc desc({direct, x, any, y, stride, dilate, pad, pad}, engine, forward);
      primitive = convolution_backward_weights(desc);
      result = memory(desc.diff_weights_desc(), engine);
      args[DNNL_ARG_DIFF_WEIGHTS] = result;
      back = dnnl::reorder(result, mine);
      plainResult = mine;
    }
  }
  void run() { primitive.execute(stream, args); }
  void finish() { // the filter's gradient in our order
    if (result)
      back.execute(stream, result, plainResult);
    stream.wait();
  }

private:
  void takeFilter(dnnl::memory &mine, const dnnl::memory::desc &desc) {
    dnnl::memory theirs(desc, engine);
    dnnl::reorder(mine, theirs).execute(stream, mine, theirs);
    stream.wait();
    args[DNNL_ARG_WEIGHTS] = theirs;
  }

  dnnl::engine engine;
  dnnl::stream stream;
  dnnl::primitive primitive;
  dnnl::memory result, plainResult;
  dnnl::reorder back;
  std::unordered_map<int, dnnl::memory> args;
};

struct Row {
  double ratio = 0, ours = 0, theirs = 0; // GFLOP/s
};

bool measure(const Layer &layer, Gives gives, const std::string &cpu, int rounds, Row &row) {
  kernels::ConvSpec spec;
  if (!specOf(layer, gives, spec)) {
    std::fprintf(stderr, "%s: no kernel\n", layer.name);
    return false;
  }
  kernels::TargetInfo target = target::infoOf(cpu);
  test::KernelHarness harness(cpu);
  auto builder = harness.builder();
  kernels::buildConv(builder, harness.module(), "conv", spec, target);
  if (!harness.compile()) {
    std::fprintf(stderr, "%s: %s\n", layer.name, harness.error().c_str());
    return false;
  }
  test::KernelFunction function = harness.lookup("conv");
  int64_t image = layer.imageCount(), filter = layer.filterCount(), output = layer.outputCount();
  int64_t counts[] = {gives == Gives::Image ? output : image, gives == Gives::Filter ? output : filter,
                      gives == Gives::Output ? output : gives == Gives::Image ? image : filter};
  test::Arena arena;
  for (int64_t count : counts)
    arena.add(count * 4);
  if (int64_t bytes = kernels::scratchBytesPerThread(spec, target))
    arena.add(bytes);
  uint32_t state = 1;
  for (int buffer : {0, 1})
    for (int64_t i = 0; i < counts[buffer]; ++i) {
      state = state * 1664525u + 1013904223u;
      arena.at<float>(buffer)[i] = float(int32_t(state)) * 4e-10f;
    }
  std::vector<float> theirs(counts[2]);
  float *places[] = {arena.at<float>(0), arena.at<float>(1), theirs.data()};
  OneDnn dnnl(layer, gives, places[gives == Gives::Image ? 2 : 0], places[gives == Gives::Filter ? 2 : 1],
              places[gives == Gives::Output ? 2 : gives == Gives::Image ? 0 : 1]);
  int64_t context[kernels::kContextWords] = {};
  auto callOurs = [&] { function(arena.data(), arena.offsetsOf(), context, 0, 1); };
  auto callTheirs = [&] { dnnl.run(); };
  callOurs();
  callTheirs();
  dnnl.finish();
  double terms = layer.flops() / 2 / double(counts[2]);
  for (int64_t i = 0; i < counts[2]; ++i)
    if (!(std::fabs(arena.at<float>(2)[i] - theirs[i]) <= 2e-5 * (terms < 100 ? 10 : std::sqrt(terms)))) {
      std::fprintf(stderr, "%s %s: element %lld is %g, oneDNN has %g\n", layer.name, kNames[int(gives)], (long long)i,
                   arena.at<float>(2)[i], theirs[i]);
      return false;
    }
  int repeats = int(std::max(1.0, 2e-3 / timeOf(2, callTheirs)));
  std::vector<double> ratios, ourTimes, theirTimes;
  for (int round = 0; round < rounds; ++round) {
    double ourTime = timeOf(repeats, callOurs), theirTime = timeOf(repeats, callTheirs);
    ratios.push_back(theirTime / ourTime);
    ourTimes.push_back(ourTime);
    theirTimes.push_back(theirTime);
  }
  row = {median(ratios), layer.flops() / median(ourTimes) * 1e-9, layer.flops() / median(theirTimes) * 1e-9};
  return true;
}

} // namespace

int main(int argc, char **argv) {
  std::string cpu = "native", filter;
  int rounds = 9;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--cpu") && i + 1 < argc)
      cpu = argv[++i];
    else if (!std::strcmp(argv[i], "--rounds") && i + 1 < argc)
      rounds = std::max(1, std::atoi(argv[++i]));
    else if (!std::strcmp(argv[i], "--batch") && i + 1 < argc)
      batch = std::max(1, std::atoi(argv[++i]));
    else if (!std::strcmp(argv[i], "--direct"))
      winograd = false;
    else if (!std::strcmp(argv[i], "--quick"))
      rounds = 1;
    else if (argv[i][0] != '-')
      filter = argv[i];
    else {
      std::fprintf(stderr, "usage: bench_conv [--cpu NAME] [--batch N] [--rounds N] [--direct] [FILTER]\n");
      return 2;
    }
  }
  int lanes = target::lanesOf(cpu);
  if (lanes == 0) {
    std::fprintf(stderr, "unknown cpu '%s'\n", cpu.c_str());
    return 2;
  }
  if (lanes < 16)
    dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
  omp_set_num_threads(1);

  std::printf("%-18s %-8s %10s %10s %7s   batch %lld\n", "convolution", "gives", "GFLOP/s", "oneDNN", "ratio", (long long)batch);
  double logs[3] = {}, least = 1e9;
  int counts[3] = {};
  bool ok = true;
  for (const Layer &layer : layers) {
    if (!filter.empty() && !std::strstr(layer.name, filter.c_str()))
      continue;
    for (Gives gives : {Gives::Output, Gives::Image, Gives::Filter}) {
      Row row;
      if (!measure(layer, gives, cpu, rounds, row)) {
        ok = false;
        continue;
      }
      std::printf("%-18s %-8s %10.1f %10.1f %7.3f\n", layer.name, kNames[int(gives)], row.ours, row.theirs, row.ratio);
      std::fflush(stdout);
      logs[int(gives)] += std::log(row.ratio);
      ++counts[int(gives)];
      least = std::min(least, row.ratio);
    }
  }
  int all = counts[0] + counts[1] + counts[2];
  if (all == 0)
    return 1;
  for (int i : {0, 1, 2})
    if (counts[i])
      std::printf("RESULT conv.%s_geomean %.3f\n", kNames[i], std::exp(logs[i] / counts[i]));
  std::printf("RESULT conv.geomean %.3f\n", std::exp((logs[0] + logs[1] + logs[2]) / all));
  std::printf("RESULT conv.min %.3f\n", least);
  return ok ? 0 : 1;
}
