// Metadata.cpp: what the runtime is told, as the JSON text described in runtime/METADATA.md.
#include "compiler/phases/MetadataParts.h"
#include "compiler/phases/ProgramHash.h"
#include "compiler/phases/Version.h"

#include "compiler/frontend/RunValues.h"

#include "compiler/analysis/LoopTrace.h"
#include "compiler/target/Object.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

#include "llvm/Support/JSON.h"

#include <cmath>
#include <map>
#include <numeric>

using namespace mlir;

namespace cinch {

// Written in one go, key by key: a tree of it would take several times the memory of the whole plan of a deep program.
using namespace metadata;

const char *metadata::dtypeOf(kernels::Elem elem) {
  switch (elem) {
  case kernels::Elem::F32: return "F32";
  case kernels::Elem::F64: return "F64";
  case kernels::Elem::I32: return "I32";
  case kernels::Elem::Bool: return "BOOL";
  case kernels::Elem::BF16: return "BF16";
  }
  return "";
}

void metadata::numbers(OStream &out, StringRef key, llvm::ArrayRef<int64_t> list) {
  out.attributeArray(key, [&] {
    for (int64_t number : list)
      out.value(number);
  });
}

static void texts(OStream &out, StringRef key, llvm::ArrayRef<std::string> list) {
  out.attributeArray(key, [&] {
    for (const std::string &text : list)
      out.value(text);
  });
}

// An array of objects: `write` has each member's key written.
template <typename List, typename Write> static void objects(OStream &out, StringRef key, const List &list, Write write) {
  out.attributeArray(key, [&] {
    for (const auto &item : list)
      out.object([&] { write(item); });
  });
}

// The shape of one example.
static std::vector<int64_t> exampleShape(Value value) {
  std::vector<int64_t> sizes;
  auto shape = analysis::shapeOf(value);
  for (size_t i = 0; i < shape.size(); ++i)
    if (int(i) != analysis::batchAxisOf(value))
      sizes.push_back(shape[i]);
  return sizes;
}

static void datasets(OStream &out, const Program &program) {
  static const char *sources[] = {"idx", "npy", "npz", "csv", "safetensors", "text", "tokens", "records"};
  const char *floating = program.train.f64 ? "F64" : "F32";
  objects(out, "datasets", program.datasets, [&](const Dataset &data) {
    out.attribute("name", data.name);
    out.attribute("source", sources[data.source]);
    texts(out, "files", data.files);
    objects(out, "fields", data.fields, [&](const Field &field) {
      out.attribute("name", field.name);
      out.attribute("dtype", field.type.dtype == DType::F32 ? floating : field.type.dtype == DType::I32 ? "I32" : "BOOL");
      numbers(out, "shape", llvm::ArrayRef<int64_t>(field.type.shape).drop_front(1));
      out.attribute("scale", field.scale);
      if (!field.from.empty())
        texts(out, "from", field.from);
      if (field.hasBelow)
        out.attribute("below", field.below);
      if (field.hasExcept)
        out.attribute("except", field.except);
      if (!field.names.empty())
        texts(out, "names", field.names);
      if (field.other)
        out.attribute("other", true);
      if (field.normalize)
        out.attribute("normalize", true);
      if (field.at)
        out.attribute("at", field.at);
    });
    out.attribute("window", data.window);
    out.attribute("stride", data.stride);
    out.attribute("header", data.header);
    out.attribute("token_bits", data.tokenBits);
    out.attribute("csv_header", data.csvHeader);
    out.attribute("separator", data.separator);
    if (data.hasMissing)
      out.attribute("missing", data.missing);
    if (data.missingMean)
      out.attribute("missing_mean", true);
    if (data.holdOut > 0) {
      out.attribute("hold_out", data.holdOut);
      out.attribute("hold_seed", int64_t(data.holdSeed));
      out.attribute("held", data.held);
    }
    out.attribute("shuffle", data.shuffle);
  });
}

static void trainSettings(OStream &out, const Train &train) {
  static const char *kinds[] = {"eval", "checkpoint", "log"};
  out.attribute("dataset", train.dataset);
  out.attribute("clip_norm", train.clipNorm);
  objects(out, "every", train.every, [&](const Every &item) {
    out.attribute("steps", item.steps);
    out.attribute("kind", kinds[item.kind]);
    out.attribute("dataset", item.dataset);
    out.attribute("batches", item.batches);
    out.attribute("dir", item.dir);
    out.attribute("keep", item.keep);
    out.attribute("patience", item.patience);
    out.attribute("best", item.best);
    out.attribute("best_is_max", item.bestIsMax);
    out.attribute("csv", item.csv);
    out.attribute("jsonl", item.jsonl);
    out.attribute("tensorboard", item.tensorboard);
    out.attribute("html", item.html);
  });
}

// A named value that a function hands out.
struct Result {
  Value value;
  StringRef name;
  int64_t offset;
  bool perExample; // handed out in the loop, one an example, or behind it
  int64_t copies;  // where it waits to be handed out while later micro-batches go on: that of micro-batch k is k modulo so many
};

static int64_t copiesOf(Value value) {
  auto result = dyn_cast<OpResult>(value);
  if (!result)
    return 1;
  if (auto loop = dyn_cast<plan::LoopOp>(result.getOwner()))
    return copiesOf(loop.yieldedFor(result));
  auto copies = result.getOwner()->getAttrOfType<DenseI64ArrayAttr>(kCopiesAttr);
  return copies ? copies[result.getResultNumber()] : 1;
}

static std::vector<Result> resultsOf(const Part &part) {
  std::vector<Result> results;
  func::FuncOp(part.function).walk([&](plan::ResultsOp op) {
    bool inLoop = isa<plan::LoopOp>(op->getParentOp());
    for (auto [value, name, offset] : llvm::zip(op.getValues(), op.getNames(), *op.getReads()))
      results.push_back({value, cast<StringAttr>(name).getValue(), part.base + offset, inLoop, copiesOf(value)});
  });
  return results;
}

static void results(OStream &out, StringRef key, llvm::ArrayRef<Result> list, bool perExample) {
  auto ofThese = llvm::make_filter_range(list, [&](const Result &result) { return result.perExample == perExample; });
  objects(out, key, ofThese, [&](const Result &result) {
    out.attribute("name", result.name);
    out.attribute("dtype", dtypeOf(analysis::elemOf(result.value)));
    out.attribute("offset", result.offset);
    if (perExample && result.copies > 1)
      out.attribute("copies", result.copies);
    if (perExample)
      numbers(out, "shape", exampleShape(result.value));
    else if (!analysis::shapeOf(result.value).empty())
      numbers(out, "shape", analysis::shapeOf(result.value));
  });
}

int64_t metadata::offsetOf(const Part &part, unsigned argument) {
  func::FuncOp function = part.function;
  int64_t first = function.getArgAttr(argument, kSpaceAttr) ? part.hostAt : part.base;
  return first + function.getArgAttrOfType<IntegerAttr>(argument, "plan.offset").getInt();
}

// The names of the values that depend on a field.
static std::vector<std::string> dependents(const Graph &graph, const std::vector<NamedValue> &values, int64_t field) {
  std::vector<std::string> names;
  for (const NamedValue &value : values) {
    std::vector<bool> reached(graph.ops.size());
    reached[value.op] = true;
    bool depends = false;
    for (int op = value.op; op >= 0; --op) { // operands come before their ops
      if (!reached[op])
        continue;
      depends |= graph.ops[op].kind == OpKind::Field && graph.ops[op].integer(Key::Index) == field;
      for (int operand : graph.ops[op].operands)
        if (operand >= 0)
          reached[operand] = true;
    }
    if (depends)
      names.push_back(value.name);
  }
  return names;
}

static void entryFields(OStream &out, const Part &part, const Program &program, int64_t &valid) {
  func::FuncOp function = part.function;
  for (BlockArgument argument : function.getArguments()) {
    unsigned number = argument.getArgNumber();
    if (function.getArgAttr(number, nn::kValidRowsAttr))
      valid = offsetOf(part, number);
    auto index = function.getArgAttrOfType<IntegerAttr>(number, nn::kFieldAttr);
    if (!index)
      continue;
    out.object([&] {
      out.attribute("index", index.getInt());
      out.attribute("offset", offsetOf(part, number));
      out.attribute("bytes", analysis::elementsOf(argument) * kernels::bytesOf(analysis::elemOf(argument)));
      if (part.plan->name == "eval")
        texts(out, "needed_by", dependents(program.evaluation, program.metrics, index.getInt()));
      if (part.plan->name == "predict")
        texts(out, "needed_by", dependents(program.prediction, program.results, index.getInt()));
    });
  }
}

// `parts`: of the workers.
static void entry(OStream &out, llvm::ArrayRef<Part> parts, const Program &program, int replicas, bool several) {
  int64_t valid = -1, bytes = 0;
  llvm::SmallVector<int64_t> valids; // of the workers that know which rows count
  const EntryPlan &first = *parts.front().plan;
  const solve::Decision &decision = first.outcome.result.plan.decision;
  out.attribute("name", first.name);
  out.attribute("microbatch", decision.microbatch);
  out.attribute("count", first.name == "train" ? decision.count * replicas : 0);
  int64_t group = 1; // grains are of training alone
  for (const Part &part : parts)
    group = std::lcm(group, nn::examplesTogether(part.function));
  if (first.name == "eval" && group > 1)
    out.attribute("group", group);
  out.attributeArray("fields", [&] {
    for (const Part &part : parts) {
      int64_t here = -1;
      entryFields(out, part, program, here);
      if (here >= 0)
        valids.push_back(here);
    }
  });
  if (!valids.empty())
    valid = valids.front();
  out.attribute("valid", valid);
  if (several)
    numbers(out, "valids", valids);
  std::vector<Result> handedOut;
  for (const Part &part : parts) {
    llvm::append_range(handedOut, resultsOf(part));
    bytes += part.plan->arenaBytes;
  }
  results(out, "scalars", handedOut, false);
  results(out, "results", handedOut, true);
  out.attribute("bytes", bytes);
}

static void buffers(OStream &out, StringRef key, const std::vector<LaunchInfo::Buffer> &list) {
  objects(out, key, list, [&](const LaunchInfo::Buffer &buffer) {
    out.attribute("word", buffer.word);
    out.attribute("count", buffer.count);
    if (buffer.pitch > 0) {
      out.attribute("columns", buffer.columns);
      out.attribute("pitch", buffer.pitch);
    }
    if (buffer.elem != kernels::Elem::F32)
      out.attribute("dtype", dtypeOf(buffer.elem));
  });
}

static void operations(OStream &out, const KernelOperations &list, const std::string &source) {
  out.attributeArray("nodes", [&] {
    for (int number : list.ofNode)
      out.value(number);
  });
  objects(out, "list", list.operations, [&](const KernelOperations::Operation &op) {
    out.attribute("name", op.name);
    out.attribute("line", op.line);
    if (op.file != source)
      out.attribute("file", op.file);
    if (op.ofExamples)
      out.attribute("batch", true);
  });
}

// What launches are priced with, each once, and which of these each launch has.
struct Prices {
  std::vector<std::vector<int64_t>> each;
  std::vector<int64_t> ofLaunch;
};

static Prices pricesOf(const std::vector<LaunchInfo> &launches) {
  Prices prices;
  std::map<std::vector<int64_t>, int64_t> numbers;
  auto nanoseconds = [](double seconds) { return int64_t(std::llround(1e9 * seconds)); };
  for (const LaunchInfo &launch : launches) {
    std::vector<int64_t> price{std::llround(launch.price.flops), std::llround(launch.price.traffic), nanoseconds(launch.price.arithmeticSeconds),
                               nanoseconds(launch.price.trafficSeconds), nanoseconds(launch.price.seconds)};
    auto [found, fresh] = numbers.try_emplace(price, int64_t(prices.each.size()));
    if (fresh)
      prices.each.push_back(price);
    prices.ofLaunch.push_back(found->second);
  }
  return prices;
}

static void launch(OStream &out, const LaunchInfo &launch, int64_t price, const std::string &source) {
  out.attribute("kernel", launch.kernel);
  out.attribute("line", launch.line);
  out.attribute("text", launch.text);
  if (launch.file != source)
    out.attribute("file", launch.file);
  out.attribute("price", price);
  if (launch.operations >= 0) {
    buffers(out, "outputs", launch.outputs);
    out.attribute("ops", launch.operations);
    if (launch.body >= 0)
      out.attribute("body", launch.body);
    else
      buffers(out, "inputs", launch.inputs);
  }
  if (launch.examples > 0)
    out.attribute("examples", launch.examples);
}

// Where the gate and the logs find their scalars. All workers test the same loss and norm; the first one's are told.
static void gate(OStream &out, llvm::ArrayRef<Part> train, const Program &program) {
  std::map<std::string, int64_t> offsets{{"loss", -1}, {"norm", -1}, {"lr", -1}};
  for (const Result &result : resultsOf(train.front()))
    offsets[result.name.str()] = result.offset;
  for (auto &[name, offset] : offsets)
    out.attribute(name, offset);
  out.attribute("dtype", program.train.f64 ? "F64" : "F32");
  if (train.size() == 1)
    return;
  objects(out, "gates", train, [&](const Part &part) {
    func::FuncOp(part.function).walk([&](plan::GateOp op) {
      out.attribute("loss", part.base + op.getReads()->front());
      out.attribute("norm", op.getNorm() ? part.base + (*op.getReads())[1] : int64_t(-1));
    });
  });
}

// Channels of sums that are added, if their order is free: bytes of a number, if all have as many; else -1.
static llvm::DenseMap<uint64_t, int> freeSums(llvm::ArrayRef<Part> train, const Program &program) {
  llvm::DenseMap<uint64_t, int> sums;
  for (const Part &part : program.train.combine == Combine::Reduce ? train : llvm::ArrayRef<Part>())
    func::FuncOp(part.function).walk([&](plan::ReceiveOp receive) {
      if (!receive.getAdds())
        return;
      int bytes = int(kernels::bytesOf(analysis::elemOf(receive.sum())));
      int &known = sums.try_emplace(receive.getChannel(), bytes).first->second;
      known = known == bytes ? bytes : -1;
    });
  return sums;
}

// How several workers share the arena, and what they tell one another.
static void workers(OStream &out, const WorkersPlan &plan, const llvm::DenseMap<uint64_t, int> &sums) {
  objects(out, "workers", plan.each, [&](const WorkersPlan::Worker &worker) {
    out.attribute("at", worker.at);
    out.attribute("bytes", worker.bytes);
    if (worker.hostBytes > 0) {
      out.attribute("host_at", worker.hostAt);
      out.attribute("host_bytes", worker.hostBytes);
    }
    if (worker.shared > 0)
      out.attribute("shared", worker.shared);
  });
  out.attributeArray("channels", [&] {
    uint64_t number = 0;
    for (auto [channel, place] : llvm::zip(plan.channels, plan.places))
      out.object([&, &channel = channel, &place = place] {
        out.attribute("from", channel.from);
        out.attribute("to", channel.to);
        out.attribute("bytes", channel.messageBytes);
        out.attribute("boxes", channel.boxes);
        out.attribute("at", place.boxes);
        out.attribute("staging", place.staging);
        out.attribute("name", channel.label);
        if (!channel.action.empty())
          out.attribute("action", channel.action);
        if (int bytes = sums.lookup(number++); bytes > 0)
          out.attribute("sums", int64_t(bytes));
      });
  });
}

// What --set replaces, and what a resumed run is compared with.
static void runValueList(OStream &out, const Program &program, const WorkersPlan &workers) {
  static const char *kinds[] = {"at_least_0", "positive", "below_1", "count", "whole"};
  std::vector<RunValue> values = runValues(program.train);
  out.attributeArray("values", [&] {
    for (size_t place = 0; place < values.size(); ++place)
      if (const RunValue &value = values[place]; !value.key.empty())
        out.object([&] {
          out.attribute("key", value.key);
          out.attribute("place", int64_t(place));
          out.attribute("value", value.value);
          out.attribute("kind", kinds[value.kind]);
          out.attribute("zero_decides", value.zeroDecides);
        });
  });
  Described described = describedTraining(program);
  out.attributeArray("described", [&] {
    auto rounds = [&](StringRef key, int number) {
      out.object([&] {
        out.attribute("key", key);
        out.attribute("text", std::to_string(number));
        out.attribute("decides", false);
        out.attribute("then", makesOwnSteps(program.train.combine)
                                  ? "; replicas that the checkpoint lacks begin with its parameters, and each has another part of the batch"
                                  : "; sums are added in another order from here on, so that the last digits differ");
      });
    };
    if (program.train.combine != Combine::Exact)
      rounds("replicas", workers.replicas);
    if (program.train.shards > 1)
      rounds("shards", workers.shards);
    for (bool decides : {true, false})
      for (const auto &[key, text] : decides ? described.decides : described.besides)
        out.object([&, &key = key, &text = text] {
          out.attribute("key", key);
          out.attribute("text", text);
          out.attribute("decides", decides);
        });
  });
}

// Files of parameters that the program starts from, and what they are called there.
static void startingFiles(OStream &out, const Program &program) {
  if (!program.nameMaps.empty())
    objects(out, "names", program.nameMaps, [&](const NameMap &map) {
      out.attribute("name", map.name);
      objects(out, "mappings", map.mappings, [&](const NameMap::Mapping &mapping) {
        out.attribute("ours", mapping.ours);
        out.attribute("theirs", mapping.theirs);
        out.attribute("transposed", mapping.transposed);
      });
    });
  if (!program.train.initFile.empty())
    out.attributeObject("init", [&] {
      out.attribute("file", program.train.initFile);
      out.attribute("names", program.train.initNames);
    });
}

// Text goes in, logits over the same positions come out: such a model can write.
static void modelText(OStream &out, const Program &program) {
  const Dataset &data = program.datasets[program.train.dataset];
  if ((data.source != Dataset::Text && data.source != Dataset::Tokens) || program.modelResult < 0)
    return;
  const TensorType &logits = program.prediction.ops[program.results[program.modelResult].op].type;
  if (logits.dtype != DType::F32 || logits.shape.size() != 3 || logits.batch != 0 || logits.shape[1] > data.window)
    return;
  out.attributeObject("model_text", [&] {
    out.attribute("field", 0);
    out.attribute("length", logits.shape[1]);
    out.attribute("vocab", logits.shape[2]);
    out.attribute("result", program.modelResult);
  });
}

// Whose instructions the kernels have. Nothing is said of a GPU's.
static void cpu(OStream &out, const std::string &name, bool bf16) {
  if (name.empty())
    return;
  out.attribute("cpu", name);
  out.attributeArray("needs", [&] {
    for (const std::string &set : target::instructionSetsOf(name, bf16))
      out.value(set);
  });
}

std::string metadataText(const MetadataInput &in) {
  const Program &program = in.program;
  std::vector<std::vector<Part>> entries; // of the workers
  for (const EntryPlan &plan : in.entries) {
    if (entries.empty() || entries.back().front().plan->name != plan.name)
      entries.emplace_back();
    auto function = cast<func::FuncOp>(SymbolTable::lookupSymbolIn(in.module, plan.function));
    if (in.workers.each.empty())
      entries.back().push_back({function, &plan, 0, in.hostAt});
    else
      entries.back().push_back({function, &plan, in.workers.each[size_t(plan.worker)].at, in.workers.each[size_t(plan.worker)].hostAt});
  }
  const std::vector<Part> &train = entries.front();
  std::string source(in.sources.name(1)), text;
  llvm::raw_string_ostream stream(text);
  OStream out(stream);
  out.object([&] {
    out.attribute("program", program.modelName);
    out.attribute("hash", in.hash);
    out.attribute("source", source);
    out.attribute("version", kVersion);
    out.attribute("seed", int64_t(program.train.seed));
    out.attribute("batch", program.batch);
    out.attribute("steps", program.train.steps);
    out.attribute("epochs", program.train.epochs);
    out.attribute("precision", program.train.precision());
    out.attribute("arena_bytes", in.arenaBytes);
    if (in.hostBytes > 0) {
      out.attribute("host_at", in.hostAt);
      out.attribute("host_bytes", in.hostBytes);
    }
    out.attribute("budget", in.budget);
    out.attribute("allowance", in.allowance);
    out.attribute("max_threads", in.maxThreads);
    out.attribute("persistent_bytes", in.persistentBytes);
    out.attribute("step_seconds", in.seconds);
    out.attribute("costs", in.costs);
    cpu(out, in.cpu, program.train.bf16);
    if (in.workers.count > 1) {
      if (in.workers.transportReserve > 0)
        out.attribute("transport_reserve", in.workers.transportReserve);
      out.attribute("replicas", in.workers.replicas);
      if (in.workers.shards > 1)
        out.attribute("shards", in.workers.shards);
      if (in.workers.ownSteps != OwnSteps::None)
        out.attribute("own_steps", nameOf(program.train.combine));
      if (in.workers.request.schedule == solve::Schedule::TwoBW)
        out.attribute("overlaps", true);
      workers(out, in.workers, freeSums(train, program));
    }
    parametersAndSlots(out, train, program, in.workers.ownSteps);
    datasets(out, program);
    out.attributeObject("train", [&] { trainSettings(out, program.train); });
    objects(out, "entries", entries, [&](const std::vector<Part> &parts) {
      entry(out, parts, program, in.workers.replicas, in.workers.count > 1);
    });
    out.attributeObject("gate", [&] { gate(out, train, program); });
    runValueList(out, program, in.workers);
    startingFiles(out, program);
    Prices prices = pricesOf(in.host.launches);
    auto lists = [&](StringRef key, const std::vector<std::vector<int64_t>> &all) {
      out.attributeArray(key, [&] {
        for (const std::vector<int64_t> &list : all)
          out.array([&] {
            for (int64_t number : list)
              out.value(number);
          });
      });
    };
    objects(out, "launches", llvm::enumerate(in.host.launches),
            [&](auto each) { launch(out, each.value(), prices.ofLaunch[each.index()], source); });
    lists("prices", prices.each);
    lists("bodies", in.host.bodies);
    objects(out, "operations", in.host.operations, [&](const KernelOperations &list) { operations(out, list, source); });
    texts(out, "plan", in.planLines);
    modelText(out, program);
  });
  return text;
}

} // namespace cinch
