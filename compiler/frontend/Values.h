// Values.h: what an expression can be while the checker walks a program: a constant, or a tensor of the graph being
// built.
#ifndef CINCH_COMPILER_FRONTEND_VALUES_H
#define CINCH_COMPILER_FRONTEND_VALUES_H

#include "compiler/frontend/Number.h"

#include <string>
#include <vector>

namespace cinch {

// The values an i32 tensor may hold, both ends included.
struct Interval {
  bool known = false;
  int64_t low = 0, high = 0;

  static Interval of(int64_t low, int64_t high) { return {true, low, high}; }
  static Interval below(int64_t end) { return {true, 0, end - 1}; }
  bool within(int64_t first, int64_t last) const { return known && low >= first && high <= last; }
  bool fitsI32() const { return !known || (low >= INT32_MIN && high <= INT32_MAX); }
};
Interval addIntervals(Interval a, Interval b);
Interval subtractIntervals(Interval a, Interval b);
Interval multiplyIntervals(Interval a, Interval b);
Interval maxIntervals(Interval a, Interval b);
Interval minIntervals(Interval a, Interval b);
Interval joinIntervals(Interval a, Interval b); // either of the two
std::string intervalText(Interval interval);    // "0 .. 9", "any i32"

struct Tensor {
  int op = -1; // in the graph being built
  DType dtype = DType::F32;
  std::vector<Number> axes;
  std::vector<int> labels; // inside index notation: the index that runs over each axis
  Interval range;          // i32
  bool hasExcept = false;  // data declared `below N except v`: v may occur too
  int64_t except = 0;
};
Interval openRange(const Tensor &); // the interval with the exceptional value of the data in it

struct Distribution {
  enum Kind {
    Constant,
    Normal,
    TruncatedNormal,
    Uniform,
    Orthogonal,
    KaimingNormal,
    KaimingUniform,
    XavierNormal,
    XavierUniform,
  } kind = Constant;
  double a = 0;
  bool fanOut = false; // kaiming
};

struct Value {
  enum Kind { Error, Number, Bool, String, Word, Distribution, Tuple, Tensor } kind = Error;
  cinch::Number number;
  bool flag = false;
  std::string text; // String; Word: `fan_in`, `fan_out`
  cinch::Distribution distribution;
  std::vector<Value> items; // Tuple: several results of a call, or a written tuple
  cinch::Tensor tensor;

  static Value of(cinch::Number number) {
    Value value;
    value.kind = Number;
    value.number = std::move(number);
    return value;
  }
  static Value of(cinch::Tensor tensor) {
    Value value;
    value.kind = Tensor;
    value.tensor = std::move(tensor);
    return value;
  }
  static Value ofBool(bool flag) {
    Value value;
    value.kind = Bool;
    value.flag = flag;
    return value;
  }
  static Value ofText(Kind kind, std::string text) {
    Value value;
    value.kind = kind;
    value.text = std::move(text);
    return value;
  }
  static Value of(cinch::Distribution distribution) {
    Value value;
    value.kind = Distribution;
    value.distribution = distribution;
    return value;
  }
  bool isError() const { return kind == Error; }
  bool isTensor() const { return kind == Tensor; }
  bool isNumber() const { return kind == Number; }
  bool isBool() const { return kind == Bool; }
  bool isConstant() const {
    return kind != Error && kind != Tensor && (kind != Tuple || items.empty() || items[0].isConstant());
  }
};

const char *dtypeName(DType dtype);                                                       // "f32"
std::string typeText(DType dtype, const std::vector<Number> &axes, const DimTable &dims); // "f32[B, 4 * D]"
std::string describe(const Value &value, const DimTable &dims); // type of a tensor, text of a constant
std::string countText(double count); // a whole number
const char *kindName(const Value &value);                       // "a number", "a tensor"

} // namespace cinch
#endif
