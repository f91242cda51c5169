// Ops.cpp: the table made from the definitions, and look-ups in it.
#include "dialects/ops/Ops.h"

#include <cstring>

namespace cinch {

static const std::vector<OpInfo> &table() {
  static const ValueInfo input{"result", uint8_t(bit(DType::F32) | bit(DType::I32) | bit(DType::Bool)), Count::One};
  static const AttrInfo index{Key::Index, "index", AttrKind::Integer, ChoiceType::None, false, {}};
  static const AttrInfo place{Key::Place, "state", AttrKind::Integer, ChoiceType::None, false, {}};
  static const AttrInfo trips{Key::Trips, "trips", AttrKind::Integer, ChoiceType::None, false, {}};
  static const ValueInfo one{"x", input.types, Count::One}, states{"states", input.types, Count::Variadic};
  static const std::vector<OpInfo> rows = {
      {"parameter", false, false, false, false, {}, {index}, {input}},
      {"field", false, false, false, true, {}, {index}, {input}},
      {"valid_rows", false, false, false, true, {}, {}, {input}},
      {"loop_state", false, false, false, false, {one}, {index, place, trips}, {input}},
      {"loop_slice", false, false, false, false, {one}, {index, trips}, {input}},
      {"loop_stack", false, false, false, false, {states}, {index, place, trips}, {input}},
      {"loop_final", false, false, false, false, {states}, {index, place, trips}, {input}},
#define OP_TABLE
#include "dialects/ops/Ops.inc"
  };
  return rows;
}

const OpInfo &infoOf(OpKind kind) { return table()[size_t(kind)]; }

std::optional<OpKind> opNamed(std::string_view name) {
  for (size_t i = 0; i < table().size(); ++i)
    if (table()[i].name == name)
      return OpKind(i);
  return std::nullopt;
}

int OpInfo::placeOf(Key key) const {
  for (size_t i = 0; i < attributes.size(); ++i)
    if (attributes[i].key == key)
      return int(i);
  return -1;
}

namespace {
struct EnumValue {
  const char *type;
  int64_t value;
  const char *name;
};
} // namespace

static const char *nameOf(const char *type, int64_t value) {
  static const EnumValue values[] = {
#define VALUE(TYPE, SYMBOL, TEXT) {#TYPE, int64_t(TYPE::SYMBOL), TEXT},
#include "dialects/ops/Ops.inc"
  };
  for (const EnumValue &each : values)
    if (each.value == value && !std::strcmp(each.type, type))
      return each.name;
  return nullptr;
}

const char *nameOf(ChoiceType type, int64_t value) {
  static const char *const types[] = {
      "",
#define ATTRIBUTE_ENUM(TYPE) #TYPE,
#include "dialects/ops/Ops.inc"
  };
  return nameOf(types[size_t(type)], value);
}
const char *nameOf(InitKind kind) { return nameOf("InitKind", int64_t(kind)); }
const char *nameOf(ScheduleKind kind) { return nameOf("ScheduleKind", int64_t(kind)); }

} // namespace cinch
