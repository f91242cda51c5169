// Values.cpp: interval arithmetic in 128 bits, and how values read in messages.
#include "compiler/frontend/Values.h"

#include <algorithm>
#include <cstdio>

namespace cinch {

// Ends beyond 62 bits are clipped: they are far outside of i32 and stay there.
static Interval clipped(__int128 low, __int128 high) {
  constexpr __int128 limit = static_cast<__int128>(1) << 62;
  return Interval::of(static_cast<int64_t>(std::max(-limit, std::min(limit, low))),
                      static_cast<int64_t>(std::max(-limit, std::min(limit, high))));
}

Interval addIntervals(Interval a, Interval b) {
  return a.known && b.known ? clipped(static_cast<__int128>(a.low) + b.low, static_cast<__int128>(a.high) + b.high)
                            : Interval();
}

Interval subtractIntervals(Interval a, Interval b) {
  return a.known && b.known ? clipped(static_cast<__int128>(a.low) - b.high, static_cast<__int128>(a.high) - b.low)
                            : Interval();
}

Interval multiplyIntervals(Interval a, Interval b) {
  if (!a.known || !b.known)
    return {};
  __int128 products[] = {static_cast<__int128>(a.low) * b.low, static_cast<__int128>(a.low) * b.high,
                         static_cast<__int128>(a.high) * b.low, static_cast<__int128>(a.high) * b.high};
  return clipped(*std::min_element(products, products + 4), *std::max_element(products, products + 4));
}

Interval maxIntervals(Interval a, Interval b) {
  return a.known && b.known ? Interval::of(std::max(a.low, b.low), std::max(a.high, b.high)) : Interval();
}

Interval minIntervals(Interval a, Interval b) {
  return a.known && b.known ? Interval::of(std::min(a.low, b.low), std::min(a.high, b.high)) : Interval();
}

Interval joinIntervals(Interval a, Interval b) {
  return a.known && b.known ? Interval::of(std::min(a.low, b.low), std::max(a.high, b.high)) : Interval();
}

Interval openRange(const Tensor &tensor) {
  return tensor.hasExcept ? joinIntervals(tensor.range, Interval::of(tensor.except, tensor.except)) : tensor.range;
}

std::string intervalText(Interval interval) {
  if (!interval.known)
    return "any i32";
  return std::to_string(interval.low) + " .. " + std::to_string(interval.high);
}

const char *dtypeName(DType dtype) {
  switch (dtype) {
  case DType::F32:
    return "f32";
  case DType::I32:
    return "i32";
  case DType::Bool:
    return "bool";
  }
  return "?";
}

std::string typeText(DType dtype, const std::vector<Number> &axes, const DimTable &dims) {
  std::string text = std::string(dtypeName(dtype)) + "[";
  for (size_t i = 0; i < axes.size(); ++i)
    text += (i ? ", " : "") + formOf(axes[i], dims);
  return text + "]";
}

std::string describe(const Value &value, const DimTable &dims) {
  switch (value.kind) {
  case Value::Tensor: {
    std::string text = typeText(value.tensor.dtype, value.tensor.axes, dims);
    if (value.tensor.dtype == DType::I32 && value.tensor.range.known)
      text += " in " + intervalText(value.tensor.range);
    return text;
  }
  case Value::Number:
    return withValue(value.number, dims);
  case Value::Bool:
    return value.flag ? "true" : "false";
  case Value::String:
    return "\"" + value.text + "\"";
  case Value::Word:
    return "`" + value.text + "`";
  case Value::Distribution:
    return "a distribution";
  case Value::Tuple:
    return std::to_string(value.items.size()) + " values";
  case Value::Error:
    return "?";
  }
  return "?";
}

std::string countText(double count) {
  char buffer[64];
  snprintf(buffer, sizeof buffer, count < 1e18 ? "%.0f" : "%g", count);
  return buffer;
}

const char *kindName(const Value &value) {
  switch (value.kind) {
  case Value::Tensor:
    return "a tensor";
  case Value::Number:
    return "a number";
  case Value::Bool:
    return "a boolean";
  case Value::String:
    return "a string";
  case Value::Word:
    return "a word";
  case Value::Distribution:
    return "a distribution";
  case Value::Tuple:
    return "several values";
  case Value::Error:
    return "an error";
  }
  return "?";
}

} // namespace cinch
