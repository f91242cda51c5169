// LaunchTables.cpp: launches with constant offsets as rows of tables, and the two functions that walk them.
#include "compiler/phases/EntryEmitter.h"
#include "compiler/phases/HostCode.h"

#include "llvm/ADT/StringExtras.h"
#include <map>

using namespace mlir;

namespace cinch {

// Row l of the table of launches, whose number for the runtime is l: its kernel, where its offsets begin, which ranges are
// cleared first, and whether one thread does all of it.
enum LaunchColumn { kKernel, kWords, kClearedFirst, kClearedEnd, kAlone, kColumns };

// A table of the addresses of globals; attributes name functions only.
static void addAddresses(ModuleOp module, StringRef symbol, ArrayRef<Attribute> symbols) {
  OpBuilder b(module.getContext());
  b.setInsertionPointToEnd(module.getBody());
  Location loc = b.getUnknownLoc();
  auto pointer = LLVM::LLVMPointerType::get(module.getContext());
  Type type = LLVM::LLVMArrayType::get(pointer, symbols.size());
  auto table = LLVM::GlobalOp::create(b, loc, type, true, LLVM::Linkage::Internal, symbol, Attribute());
  b.createBlock(&table.getInitializerRegion());
  Value array = LLVM::UndefOp::create(b, loc, type);
  for (auto [i, name] : llvm::enumerate(symbols)) {
    Value address = LLVM::AddressOfOp::create(b, loc, pointer, cast<FlatSymbolRefAttr>(name).getValue());
    array = LLVM::InsertValueOp::create(b, loc, array, address, int64_t(i));
  }
  LLVM::ReturnOp::create(b, loc, ValueRange{array});
}

std::string HostCode::linesOfKernels() const {
  constexpr size_t kMost = 3; // places of a kernel that are named
  std::map<std::string, std::vector<std::string>> placesOf;
  for (const LaunchInfo &launch : launches) {
    std::vector<std::string> &places = placesOf[launch.kernel];
    std::string place = launch.file + ":" + std::to_string(launch.line) + ": " + launch.text;
    if (places.size() < kMost && !llvm::is_contained(places, place))
      places.push_back(place);
  }
  std::string lines;
  for (size_t i = 0, first = 0; i < deviceKernels.size(); ++i) {
    first = deviceKernels[i].follows ? first : i;
    lines += "; " + deviceKernels[i].name + ": " + llvm::join(placesOf[deviceKernels[first].name], "; ") + "\n";
  }
  return lines;
}

void HostCode::addTables() {
  for (size_t first = 0, next = 0; first < deviceKernels.size(); first = next) {
    std::vector<int64_t> words = {0}; // launches, and each of them
    for (; next == first || (next < deviceKernels.size() && deviceKernels[next].follows); ++next) {
      const target::DeviceKernel &kernel = deviceKernels[next];
      ++words.front();
      words.insert(words.end(), {int64_t(next), kernel.blocks(), kernel.block, kernel.words, kernel.shared});
      words.insert(words.end(), kernel.maps.begin(), kernel.maps.end());
    }
    addTable<int64_t>(module, deviceKernels[first].name, words);
  }
  std::vector<int64_t> words;
  std::vector<int32_t> rows;
  llvm::StringMap<int> numbers;
  SmallVector<Attribute> kernels;
  for (Operation *op : launched) {
    const Call &call = callOf(op);
    auto [kernel, fresh] = numbers.try_emplace(call.kernel, int(kernels.size()));
    if (fresh)
      kernels.push_back(FlatSymbolRefAttr::get(module.getContext(), call.kernel));
    auto [first, end] = clearedLater(call.zeroed);
    rows.insert(rows.end(), {kernel->second, int32_t(words.size()), int32_t(first), int32_t(end), int32_t(call.alone)});
    words.insert(words.end(), call.words.begin(), call.words.end());
  }
  if (cleared.empty())
    cleared.append({0, 0}); // a table has at least one row
  auto pointer = LLVM::LLVMPointerType::get(module.getContext());
  if (target.isDevice())
    addAddresses(module, "kernels", kernels);
  else
    addTable(module, "kernels", LLVM::LLVMArrayType::get(pointer, kernels.size()), ArrayAttr::get(module.getContext(), kernels));
  addTable<int32_t>(module, "launches", rows);
  addTable<int64_t>(module, "offsets", words);
  addTable<int64_t>(module, "cleared", cleared);

  EntryEmitter c(module, "clear_ranges", 0, 2); // first, end
  c.function.setLinkage(LLVM::Linkage::Internal);
  c.loop(c.argument(0), c.argument(1), [&](Value range) {
    Value at = c.plus(c.number(c.i64, 0), range, 2);
    Value behind = c.plus(at, c.number(c.i64, 1), 1);
    c.call("cinch_zero", c.none, {c.context, c.entryOf("cleared", c.i64, at), c.entryOf("cleared", c.i64, behind)});
  });
  c.finish();
  EntryEmitter l(module, "launch_rows", 0, 2); // first, end
  l.function.setLinkage(LLVM::Linkage::Internal);
  l.loop(l.argument(0), l.argument(1), [&](Value row) {
    auto column = [&](LaunchColumn column) {
      Value at = l.plus(l.number(l.i64, column), row, kColumns);
      return LLVM::SExtOp::create(l.builder, l.loc, l.i64, l.entryOf("launches", l.i32, at)).getResult();
    };
    l.call("clear_ranges", l.none, {l.context, column(kClearedFirst), column(kClearedEnd)});
    l.call("cinch_launch", l.none,
           {l.context, LLVM::TruncOp::create(l.builder, l.loc, l.i32, row), l.entryOf("kernels", l.pointer, column(kKernel)),
            l.placeIn("offsets", l.i64, column(kWords)), LLVM::TruncOp::create(l.builder, l.loc, l.i32, column(kAlone))});
  });
  l.finish();
}

} // namespace cinch
