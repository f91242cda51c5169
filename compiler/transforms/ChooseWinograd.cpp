// ChooseWinograd.cpp: convolutions by Winograd's minimal filtering, on a CPU.
//
//     %y = nn.conv output %x, %w stride [1, 1] pad [1, 1] dilate [1, 1] {nn.winograd, nn.winograd_filter} : ..
#include "compiler/transforms/ChooseWinograd.h"

#include "dialects/nn/Grain.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/Winograd.h"

using namespace mlir;

namespace cinch {

// What is paid for saved products, the transformed image and filter, is little only where channels are many, and the filter is worth transforming only
// where it meets many places. The gradient of the image is a convolution of the same kind, from output to image, and that of the filter has the
// same channels and places.
static bool suits(nn::ConvOp op) {
  constexpr int64_t kTaps = 3, kFewChannels = 16, kFewPlaces = 64;
  auto are = [](ArrayRef<int64_t> numbers, int64_t number) { return llvm::all_of(numbers, [&](int64_t n) { return n == number; }); };
  auto hasPlaces = [&](nn::ConvPart part) {
    ArrayRef<int64_t> shape = nn::tensorOf(op.part(part)).getShape().drop_back();
    return shape.back() > 1 && shape.take_back(2).front() > 1 && shape.back() * shape.take_back(2).front() >= kFewPlaces;
  };
  Type type = nn::tensorOf(op.getResult()).getElementType();
  ArrayRef<int64_t> filter = nn::tensorOf(op.part(nn::ConvPart::Filter)).getShape();
  return op.getGroups() == 1 && are(op.getStride(), 1) && are(op.getDilate(), 1) &&
         are(filter.take_front(2), kTaps) && llvm::all_of(op.getPad(), [](int64_t pad) { return pad < kTaps; }) && filter[2] >= kFewChannels &&
         filter[3] >= kFewChannels && hasPlaces(nn::ConvPart::Image) && hasPlaces(nn::ConvPart::Output) && (type.isF32() || type.isF64());
}

// For the gradient of the filter both the image and the gradient of the output are transformed, which takes more channels to be worth while. Some rows
// of these lie in scratch, so they may not be long. A grain cuts sums into blocks of examples.
static bool suitsFilter(nn::ConvOp op) {
  constexpr int64_t kFewProducts = 32 * 32, kLongestRow = 256;
  ArrayRef<int64_t> filter = nn::tensorOf(op.part(nn::ConvPart::Filter)).getShape();
  return suits(op) && filter[2] * filter[3] >= kFewProducts && nn::grainOf(op) == 0 &&
         nn::tensorOf(op.part(nn::ConvPart::Output)).getShape().take_back(2).front() <= kLongestRow;
}

void chooseWinograd(ModuleOp module) {
  module.walk([](nn::ConvOp op) {
    const bool filter = op.getGives() == nn::ConvPart::Filter;
    if (filter ? suitsFilter(op) : suits(op))
      op->setAttr(nn::kWinogradAttr, UnitAttr::get(op->getContext()));
    if (!filter && suitsFilter(op))
      op->setAttr(nn::kWinogradFilterAttr, UnitAttr::get(op->getContext()));
  });
}

} // namespace cinch
