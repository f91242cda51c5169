// Metadata.cpp: what the runtime is told, as the JSON text described in runtime/METADATA.md.
#include "compiler/phases/Compile.h"
#include "compiler/phases/ProgramHash.h"
#include "compiler/phases/Version.h"

#include "compiler/frontend/RunValues.h"

#include "compiler/analysis/LoopTrace.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

#include "llvm/Support/JSON.h"

using namespace mlir;

namespace cinch {

using llvm::json::Array;
using llvm::json::Object;

static const char *dtypeOf(kernels::Elem elem) {
  switch (elem) {
  case kernels::Elem::F32: return "F32";
  case kernels::Elem::F64: return "F64";
  case kernels::Elem::I32: return "I32";
  case kernels::Elem::Bool: return "BOOL";
  }
  return "";
}

static Array shapeArray(llvm::ArrayRef<int64_t> shape) {
  Array array;
  for (int64_t size : shape)
    array.push_back(size);
  return array;
}

// The shape of one example.
static Array exampleShape(Value value) {
  Array array;
  auto shape = analysis::shapeOf(value);
  for (size_t i = 0; i < shape.size(); ++i)
    if (int(i) != analysis::batchAxisOf(value))
      array.push_back(shape[i]);
  return array;
}

static Object initOf(const Init &init) {
  return Object{{"kind", nameOf(init.kind)}, {"a", init.a}};
}

static Array datasets(const Program &program) {
  static const char *sources[] = {"idx", "npy", "npz", "csv", "safetensors", "text", "tokens"};
  const char *floating = program.train.f64 ? "F64" : "F32";
  Array all;
  for (const Dataset &data : program.datasets) {
    Array files, fields;
    for (const std::string &file : data.files)
      files.push_back(file);
    for (const Field &field : data.fields) {
      Object entry{{"name", field.name},
                   {"dtype", field.type.dtype == DType::F32 ? floating : field.type.dtype == DType::I32 ? "I32" : "BOOL"},
                   {"shape", shapeArray(llvm::ArrayRef<int64_t>(field.type.shape).drop_front(1))},
                   {"scale", field.scale}};
      if (!field.from.empty()) {
        Array from;
        for (const std::string &name : field.from)
          from.push_back(name);
        entry["from"] = std::move(from);
      }
      if (field.hasBelow)
        entry["below"] = field.below;
      if (field.hasExcept)
        entry["except"] = field.except;
      fields.push_back(std::move(entry));
    }
    all.push_back(Object{{"name", data.name}, {"source", sources[data.source]}, {"files", std::move(files)},
                         {"fields", std::move(fields)}, {"window", data.window}, {"stride", data.stride},
                         {"header", data.header}, {"token_bits", data.tokenBits}, {"csv_header", data.csvHeader},
                         {"separator", data.separator}, {"shuffle", data.shuffle}});
  }
  return all;
}

static Object trainSettings(const Train &train) {
  Array every;
  for (const Every &item : train.every) {
    static const char *kinds[] = {"eval", "checkpoint", "log"};
    every.push_back(Object{{"steps", item.steps}, {"kind", kinds[item.kind]}, {"dataset", item.dataset},
                           {"batches", item.batches}, {"dir", item.dir}, {"keep", item.keep}, {"best", item.best},
                           {"best_is_max", item.bestIsMax}, {"csv", item.csv}, {"jsonl", item.jsonl},
                           {"tensorboard", item.tensorboard}});
  }
  return Object{{"dataset", train.dataset}, {"clip_norm", train.clipNorm}, {"every", std::move(every)}};
}

static Array nameMaps(const Program &program) {
  Array maps;
  for (const NameMap &map : program.nameMaps) {
    Array mappings;
    for (const NameMap::Mapping &mapping : map.mappings)
      mappings.push_back(Object{{"ours", mapping.ours}, {"theirs", mapping.theirs}, {"transposed", mapping.transposed}});
    maps.push_back(Object{{"name", map.name}, {"mappings", std::move(mappings)}});
  }
  return maps;
}

static Array runValueList(const Train &train) {
  static const char *kinds[] = {"at_least_0", "positive", "below_1", "count", "whole"};
  Array all;
  std::vector<RunValue> values = runValues(train);
  for (size_t place = 0; place < values.size(); ++place)
    if (const RunValue &value = values[place]; !value.key.empty())
      all.push_back(Object{{"key", value.key}, {"place", int64_t(place)}, {"value", value.value}, {"kind", kinds[value.kind]},
                           {"zero_decides", value.zeroDecides}});
  return all;
}

static Array described(const Program &program) {
  Described d = describedTraining(program);
  Array all;
  for (bool decides : {true, false})
    for (const auto &[key, text] : decides ? d.decides : d.besides)
      all.push_back(Object{{"key", key}, {"text", text}, {"decides", decides}});
  return all;
}

// Named values that a function hands out: in the loop (one an example) or behind it.
static void results(func::FuncOp function, Array &scalars, Array &perExample) {
  function.walk([&](plan::ResultsOp op) {
    for (auto [value, name, offset] : llvm::zip(op.getValues(), op.getNames(), *op.getReads())) {
      Object entry{{"name", cast<StringAttr>(name).getValue()},
                   {"dtype", dtypeOf(analysis::elemOf(value))},
                   {"offset", offset}};
      if (isa<plan::MicrobatchesOp>(op->getParentOp())) {
        entry["shape"] = exampleShape(value);
        perExample.push_back(std::move(entry));
      } else {
        if (!analysis::shapeOf(value).empty())
          entry["shape"] = shapeArray(analysis::shapeOf(value));
        scalars.push_back(std::move(entry));
      }
    }
  });
}

static int64_t offsetOf(func::FuncOp function, unsigned argument) {
  return function.getArgAttrOfType<IntegerAttr>(argument, "plan.offset").getInt();
}

// The names of the values that depend on a field.
static Array dependents(const Graph &graph, const std::vector<NamedValue> &values, int64_t field) {
  Array names;
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

static Object entryObject(func::FuncOp function, const EntryPlan &plan, const Program &program) {
  Array fields, scalars, perExample;
  int64_t valid = -1;
  for (BlockArgument argument : function.getArguments()) {
    unsigned number = argument.getArgNumber();
    if (auto index = function.getArgAttrOfType<IntegerAttr>(number, nn::kFieldAttr)) {
      Object field{{"index", index.getInt()},
                   {"offset", offsetOf(function, number)},
                   {"bytes", analysis::elementsOf(argument) * kernels::bytesOf(analysis::elemOf(argument))}};
      if (plan.name == "eval")
        field["needed_by"] = dependents(program.evaluation, program.metrics, index.getInt());
      if (plan.name == "predict")
        field["needed_by"] = dependents(program.prediction, program.results, index.getInt());
      fields.push_back(std::move(field));
    }
    if (function.getArgAttr(number, nn::kValidRowsAttr))
      valid = offsetOf(function, number);
  }
  results(function, scalars, perExample);
  const solve::Decision &decision = plan.outcome.result.plan.decision;
  return Object{{"name", plan.name}, {"microbatch", decision.microbatch},
                {"count", plan.name == "train" ? decision.count : 0}, {"fields", std::move(fields)}, {"valid", valid},
                {"scalars", std::move(scalars)}, {"results", std::move(perExample)}, {"bytes", plan.arenaBytes}};
}

static Array buffers(const std::vector<LaunchInfo::Buffer> &list) {
  Array array;
  for (const LaunchInfo::Buffer &buffer : list)
    array.push_back(Object{{"word", buffer.word}, {"count", buffer.count}, {"dtype", dtypeOf(buffer.elem)}});
  return array;
}

static Object operationsObject(const KernelOperations &list, const std::string &source) {
  Array all;
  for (const KernelOperations::Operation &op : list.operations) {
    Object entry{{"name", op.name}, {"line", op.line}};
    if (op.file != source)
      entry["file"] = op.file;
    if (op.ofExamples)
      entry["batch"] = true;
    all.push_back(std::move(entry));
  }
  return Object{{"nodes", Array(list.ofNode)}, {"list", std::move(all)}};
}

std::string metadataText(const MetadataInput &in) {
  const Program &program = in.program;
  Array parameters, slots, entries, launches, lines;
  func::FuncOp train;
  for (const EntryPlan &plan : in.entries) {
    auto function = cast<func::FuncOp>(SymbolTable::lookupSymbolIn(in.module, plan.function));
    if (plan.name == "train")
      train = function;
    entries.push_back(entryObject(function, plan, program));
  }
  for (BlockArgument argument : train.getArguments()) {
    unsigned number = argument.getArgNumber();
    const char *dtype = dtypeOf(analysis::elemOf(argument));
    if (auto path = train.getArgAttrOfType<StringAttr>(number, nn::kPathAttr)) {
      for (const Parameter &parameter : program.parameters)
        if (parameter.path == path.getValue()) {
          Object entry{{"path", path.getValue()}, {"dtype", dtype},
                                      {"shape", shapeArray(analysis::shapeOf(argument))},
                                      {"offset", offsetOf(train, number)}, {"frozen", parameter.frozen},
                                      {"state", parameter.state}, {"init", initOf(parameter.init)}};
          if (parameter.averageOf >= 0)
            entry["average_of"] = program.parameters[parameter.averageOf].path;
          parameters.push_back(std::move(entry));
        }
    } else if (auto slot = train.getArgAttrOfType<StringAttr>(number, nn::kSlotAttr)) {
      slots.push_back(Object{{"path", slot.getValue()}, {"dtype", dtype},
                             {"shape", shapeArray(analysis::shapeOf(argument))}, {"offset", offsetOf(train, number)}});
    }
  }
  std::string source(in.sources.name(1));
  for (const LaunchInfo &launch : in.host.launches) {
    Object entry{{"kernel", launch.kernel}, {"line", launch.line}, {"text", launch.text}};
    if (launch.file != source)
      entry["file"] = launch.file;
    if (launch.operations >= 0) {
      entry["outputs"] = buffers(launch.outputs);
      entry["ops"] = launch.operations;
      if (launch.body >= 0)
        entry["body"] = launch.body;
      else
        entry["inputs"] = buffers(launch.inputs);
    }
    if (launch.examples > 0)
      entry["examples"] = launch.examples;
    launches.push_back(std::move(entry));
  }
  Array bodies, operations;
  for (const std::vector<int64_t> &body : in.host.bodies)
    bodies.push_back(Array(body));
  for (const KernelOperations &list : in.host.operations)
    operations.push_back(operationsObject(list, source));
  for (const std::string &line : in.planLines)
    lines.push_back(line);
  Object gate{{"loss", -1}, {"norm", -1}, {"lr", -1}, {"dtype", program.train.f64 ? "F64" : "F32"}};
  train.walk([&](plan::ResultsOp op) {
    for (auto [name, offset] : llvm::zip(op.getNames(), *op.getReads()))
      gate[cast<StringAttr>(name).getValue()] = offset;
  });
  Object meta{{"program", program.modelName},
              {"hash", in.hash},
              {"source", source},
              {"version", kVersion},
              {"seed", int64_t(program.train.seed)},
              {"batch", program.batch},
              {"steps", program.train.steps},
              {"epochs", program.train.epochs},
              {"precision", program.train.f64 ? "f64" : "f32"},
              {"arena_bytes", in.arenaBytes},
              {"budget", in.budget},
              {"allowance", in.allowance},
              {"max_threads", in.maxThreads},
              {"persistent_bytes", in.persistentBytes},
              {"parameters", std::move(parameters)},
              {"slots", std::move(slots)},
              {"datasets", datasets(program)},
              {"train", trainSettings(program.train)},
              {"entries", std::move(entries)},
              {"gate", std::move(gate)},
              {"values", runValueList(program.train)},
              {"described", described(program)},
              {"launches", std::move(launches)},
              {"bodies", std::move(bodies)},
              {"operations", std::move(operations)},
              {"plan", std::move(lines)}};
  if (!program.nameMaps.empty())
    meta["names"] = nameMaps(program);
  if (!program.train.initFile.empty())
    meta["init"] = Object{{"file", program.train.initFile}, {"names", program.train.initNames}};
  // Text goes in, logits over the same positions come out: such a model can write.
  const Dataset &data = program.datasets[program.train.dataset];
  if ((data.source == Dataset::Text || data.source == Dataset::Tokens) && program.modelResult >= 0) {
    const TensorType &logits = program.prediction.ops[program.results[program.modelResult].op].type;
    if (logits.dtype == DType::F32 && logits.shape.size() == 3 && logits.batch == 0 && logits.shape[1] <= data.window)
      meta["model_text"] = Object{{"field", 0}, {"length", logits.shape[1]}, {"vocab", logits.shape[2]},
                                  {"result", program.modelResult}};
  }
  std::string text;
  llvm::raw_string_ostream out(text);
  out << llvm::json::Value(std::move(meta));
  return text;
}

} // namespace cinch
