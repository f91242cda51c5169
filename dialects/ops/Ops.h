// Ops.h: the ops of `nn` as plain data, for code that sees no MLIR: the checker, the kernels. The table is made from the
// definitions in dialects/nn (table.py), so that an op, its operands and its attributes are listed there alone.
#ifndef CINCH_DIALECTS_OPS_OPS_H
#define CINCH_DIALECTS_OPS_OPS_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cinch {

enum class DType : uint8_t { F32, I32, Bool, F64, BF16 }; // the checker's values are never F64 or BF16: these are precisions

struct TensorType {
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  int batch = -1;    // which axis holds the examples; -1: none
  int64_t group = 1; // examples in one element of that axis: an axis of groups has several
};
inline bool operator==(const TensorType &a, const TensorType &b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.batch == b.batch && a.group == b.group;
}
inline bool operator!=(const TensorType &a, const TensorType &b) { return !(a == b); }

enum class OpKind : uint8_t {
  // Inputs of a checked program, which are no ops of `nn`. The attribute Index says which.
  Parameter, // Program::parameters[index]
  Field,     // the index-th field of the dataset the graph reads
  ValidRows, // bool[B]: false for the rows that pad the last batch of an evaluation (evaluation graph only)
  // Loops of a checked program (`scan`, `repeat .. shared`), which `nn` has as regions. The attribute Index numbers the loop, Trips is how
  // often it runs. An op belongs to the loops whose states or slices it is computed from.
  LoopState, // what state number Place is at the beginning of a trip; the operand: before the first trip
  LoopSlice, // part i of the operand along its first axis, in trip i
  LoopStack, // the operands are the states after a trip; the one of number Place, of all trips, along a new first axis
  LoopFinal, // the same, after the last trip
#define OP(KIND) KIND,
#include "dialects/ops/Ops.inc"
};

// The enums of the definitions: Comparison, Reduction, Draw, InitKind, ..
#define ENUM(TYPE, ...) enum class TYPE { __VA_ARGS__ };
#include "dialects/ops/Ops.inc"
const char *nameOf(InitKind);
const char *nameOf(ScheduleKind);

enum class Key : uint8_t {
  Index,
  Place,
  Trips,
#define ATTRIBUTE(NAME) NAME,
#include "dialects/ops/Ops.inc"
};

enum class AttrKind : uint8_t { Integer, Number, Flag, Integers, Numbers, Lists, Choice };
enum class ChoiceType : uint8_t {
  None,
#define ATTRIBUTE_ENUM(TYPE) TYPE,
#include "dialects/ops/Ops.inc"
};
// A value of an attribute; a choice is the number of its enumerator. std::monostate: not given.
using Lists = std::vector<std::vector<int64_t>>;
using AttrValue =
    std::variant<std::monostate, bool, int64_t, double, std::vector<int64_t>, std::vector<double>, Lists>;

enum class Count : uint8_t { One, Optional, Variadic };
constexpr uint8_t bit(DType type) { return uint8_t(1 << int(type)); }

struct ValueInfo { // an operand or a result
  const char *name;
  uint8_t types; // a bit each
  Count count;
};
struct AttrInfo {
  Key key;
  const char *name;
  AttrKind kind;
  ChoiceType choice;
  bool optional;
  AttrValue absent; // what stands for it if it is not given; std::monostate: it must be given, or is optional
};
struct OpInfo {
  const char *name;
  bool elementwise, sameType, infers; // infers: the shape rule gives the results' types
  bool noGradient;                    // it hands no derivative on
  std::vector<ValueInfo> operands;
  std::vector<AttrInfo> attributes;
  std::vector<ValueInfo> results;
  int placeOf(Key key) const; // of an attribute; -1: the op has no such attribute
  bool has(Key key) const { return placeOf(key) >= 0; }
};
const OpInfo &infoOf(OpKind);
std::optional<OpKind> opNamed(std::string_view name);
const char *nameOf(ChoiceType, int64_t value); // nullptr: there is no such value

} // namespace cinch
#endif
