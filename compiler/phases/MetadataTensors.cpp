// MetadataTensors.cpp: parameters and optimizer state in the runtime's description.
#include "compiler/phases/MetadataParts.h"

#include "compiler/analysis/LoopTrace.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/Shards.h"
#include "dialects/nn/Versions.h"

using namespace mlir;

namespace cinch {

using namespace metadata;

// An argument of a training step that stays from step to step, on the worker that has it.
struct Lasting {
  const Part *part;
  BlockArgument argument;
};

// Of parameters that are split among shards: elements in front of the parts, and how many parts.
struct Split {
  int64_t before = 1, parts = 1;
};
static Split splitOf(const Lasting &place) {
  auto split = func::FuncOp(place.part->function).getArgAttrOfType<DenseI64ArrayAttr>(place.argument.getArgNumber(), nn::kSplitAttr);
  return split ? Split{split[0], split[1]} : Split{};
}

// `places`: on the first replica that has it, and on the others; of what is split, the parts of each in the order of the shards. `own`: those of
// the replicas differ.
static void stored(OStream &out, llvm::ArrayRef<Lasting> places, StringRef path, llvm::ArrayRef<int64_t> shape, Split split, OwnSteps ownSteps, bool own) {
  BlockArgument first = places.front().argument;
  if (ownSteps == OwnSteps::Hogwild) // all are the same bytes
    places = places.take_front();
  if (own && places.size() > 1)
    out.attribute("own", true);
  if (own && places.size() > 1 && ownSteps == OwnSteps::RingAverage)
    out.attribute("averaged", true);
  out.attribute("path", path);
  out.attribute("dtype", dtypeOf(analysis::elemOf(first)));
  numbers(out, "shape", shape);
  if (split.parts > 1)
    out.attributeObject("split", [&] {
      out.attribute("before", split.before);
      out.attribute("parts", split.parts);
    });
  out.attribute("offset", offsetOf(*places.front().part, first.getArgNumber()));
  if (places.size() > 1)
    out.attributeArray("copies", [&] {
      for (const Lasting &copy : places.drop_front())
        out.value(offsetOf(*copy.part, copy.argument.getArgNumber()));
    });
}

// Stages may give the parts of a tensor to workers in any order (the second shard's to an earlier one, where a worker has several stages): on each
// replica those of the first shard come first. `name`: the attribute that names them.
static void sortParts(llvm::SmallVector<Lasting> &places, StringRef name) {
  llvm::StringMap<int> seen; // how many replicas' part of that name
  std::vector<std::tuple<int, int, Lasting>> keyed;
  for (const Lasting &place : places) {
    StringRef part = func::FuncOp(place.part->function).getArgAttrOfType<StringAttr>(place.argument.getArgNumber(), name).getValue();
    keyed.push_back({seen[part]++, nn::shardOfName(part).value_or(0), place});
  }
  llvm::stable_sort(keyed, [](auto &a, auto &b) { return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b)); });
  for (auto [place, key] : llvm::zip(places, keyed))
    place = std::get<2>(key);
}

void metadata::parametersAndSlots(OStream &out, llvm::ArrayRef<Part> train, const Program &program, OwnSteps ownSteps) {
  bool ring = ownSteps == OwnSteps::RingAverage, async = ownSteps == OwnSteps::Async;
  llvm::StringMap<llvm::SmallVector<Lasting>> arguments; // on each replica
  llvm::StringMap<llvm::SmallVector<Lasting>> slots;
  std::vector<StringRef> slotOrder;
  for (const Part &part : train) {
    func::FuncOp function = part.function;
    for (BlockArgument argument : function.getArguments()) {
      if (auto path = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), nn::kPathAttr))
        arguments[nn::nameOfWhole(path.getValue())].push_back({&part, argument});
      if (auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), nn::kSlotAttr)) {
        auto [known, fresh] = slots.try_emplace(nn::nameOfWhole(name.getValue()));
        if (fresh)
          slotOrder.push_back(known->getKey());
        known->second.push_back({&part, argument});
      }
    }
  }
  for (auto &parameter : arguments)
    sortParts(parameter.second, nn::kPathAttr);
  for (auto &slot : slots)
    sortParts(slot.second, nn::kSlotAttr);
  // Where a replica has versions of a parameter and not the parameter itself, these start as it does.
  for (auto &slot : slots)
    if (async && nn::isVersion(slot.first()))
      for (const Lasting &place : llvm::drop_begin(slot.second))
        arguments[slot.first().rsplit('.').first].push_back(place);
  out.attributeArray("parameters", [&] {
    for (const Parameter &parameter : program.parameters) {
      auto found = arguments.find(parameter.path);
      if (found == arguments.end())
        continue;
      out.object([&] {
        stored(out, found->second, parameter.path, parameter.type.shape, splitOf(found->second.front()), ownSteps, ring);
        out.attribute("frozen", parameter.frozen);
        out.attribute("state", parameter.state);
        out.attributeObject("init", [&] {
          out.attribute("kind", nameOf(parameter.init.kind));
          out.attribute("a", parameter.init.a);
        });
        if (parameter.averageOf >= 0)
          out.attribute("average_of", program.parameters[parameter.averageOf].path);
      });
    }
  });
  // State in the order of its parameters.
  llvm::StringMap<size_t> place;
  for (auto [i, parameter] : llvm::enumerate(program.parameters))
    place[parameter.path] = i;
  if (train.size() > 1)
    llvm::stable_sort(slotOrder, [&](StringRef a, StringRef b) {
      // The previous parameter stands first, whichever worker reads it.
      auto key = [&](StringRef name) {
        StringRef path = name.rsplit('.').first;
        return std::pair(place.lookup(path), !nn::isVersion(name));
      };
      return key(a) < key(b);
    });
  out.attributeArray("slots", [&] {
    for (StringRef name : slotOrder)
      out.object([&] {
        llvm::StringRef path = name.rsplit('.').first;
        bool version = (program.train.delay || program.train.combine == Combine::Async) && nn::isVersion(name);
        bool inRows = splitOf(slots[name].front()).parts > 1; // its state alone
        stored(out, slots[name], name, program.parameters[place.lookup(path)].type.shape, splitOf((inRows ? slots[name] : arguments[path]).front()), ownSteps,
               ring || (async && version));
        if (version)
          out.attribute("starts_as", path);
      });
  });
}

} // namespace cinch
