// GraphBuilder.cpp: nodes, and value numbering by a byte string of everything that decides an op's value.
#include "compiler/frontend/GraphBuilder.h"

#include <algorithm>
#include <cstring>

namespace cinch {

Op::Op(OpKind kind, std::vector<int> operands, std::initializer_list<std::pair<Key, AttrValue>> given)
    : kind(kind), operands(std::move(operands)) {
  for (const AttrInfo &info : infoOf(kind).attributes)
    attributes.push_back(info.absent);
  for (const auto &[key, value] : given)
    set(key, value);
}

void Op::set(Key key, AttrValue value) { attributes[size_t(infoOf(kind).placeOf(key))] = std::move(value); }

bool Op::draws() const {
  const OpInfo &info = infoOf(kind);
  return info.has(Key::Key) && !(info.has(Key::Dropout) && number(Key::Dropout) == 0);
}

namespace {
// A value of any kind as bytes; lists with their lengths, so that no two values have the same.
struct Bytes {
  std::string text;

  template <typename T> void operator()(const T &value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    text.append(bytes, sizeof(T));
  }
  void operator()(std::monostate) {}
  template <typename T> void operator()(const std::vector<T> &values) {
    (*this)(values.size());
    for (const T &value : values)
      (*this)(value);
  }
};
} // namespace

static std::string identity(const Op &op) {
  Bytes bytes;
  bytes(op.kind);
  bytes(op.operands);
  bytes(op.type.dtype);
  bytes(op.type.shape);
  bytes(op.type.batch);
  bytes(op.type.group);
  for (const AttrValue &value : op.attributes) {
    bytes(value.index());
    std::visit(bytes, value);
  }
  return bytes.text;
}

// Whether the `except` value of the data gets from the operands of an op into its result. Three kinds of ops end it: a comparison with a
// number, `where` with a number in its place, and a reduction, which is only made of what a `where` has masked.
bool GraphBuilder::takesExcept(const Op &op) const {
  auto reached = [&](int operand) { return operand >= 0 && (known[operand] & FromExcept); };
  auto isNumber = [&](int operand) { return graph.ops[operand].kind == OpKind::Constant; };
  const std::vector<int> &of = op.operands;
  if (op.kind == OpKind::Reduce)
    return false;
  if (op.kind == OpKind::Compare && (isNumber(of[0]) || isNumber(of[1])))
    return false;
  if (op.kind == OpKind::Where && !reached(of[0]) && (isNumber(of[1]) || isNumber(of[2])))
    return false;
  if (op.kind == OpKind::LoopStack || op.kind == OpKind::LoopFinal) // of all that a trip leaves, the result is one
    return reached(of[size_t(op.integer(Key::Place))]);
  return std::any_of(of.begin(), of.end(), reached);
}

uint8_t GraphBuilder::factsOf(const Op &op) const {
  uint8_t facts = 0;
  for (int operand : op.operands)
    facts |= operand < 0 ? 0 : known[operand];
  if (op.kind == OpKind::Parameter)
    facts |= FromParameter;
  if (op.draws())
    facts |= FromRandom;
  facts &= ~FromExcept;
  return takesExcept(op) ? facts | FromExcept : facts;
}

int GraphBuilder::add(Op op) {
  uint8_t facts = factsOf(op);
  auto [entry, isNew] = seen.try_emplace(identity(op), size());
  if (!isNew) {
    known[entry->second] |= facts & FromExcept; // the state of a loop may have got it since
    return entry->second;
  }
  graph.ops.push_back(std::move(op));
  known.push_back(facts);
  return size() - 1;
}

Graph GraphBuilder::finish(const std::vector<int *> &roots) {
  std::vector<int> place(graph.ops.size(), -1);
  for (int *root : roots)
    if (*root >= 0)
      place[*root] = 0;
  for (int op = size() - 1; op >= 0; --op)
    if (place[op] == 0)
      for (int operand : graph.ops[op].operands)
        if (operand >= 0)
          place[operand] = 0;
  Graph result;
  result.ops.reserve(size_t(size() - std::count(place.begin(), place.end(), -1)));
  for (int op = 0; op < size(); ++op) {
    if (place[op] < 0)
      continue;
    place[op] = static_cast<int>(result.ops.size());
    result.ops.push_back(graph.ops[op]);
    for (int &operand : result.ops.back().operands)
      operand = operand < 0 ? -1 : place[operand];
  }
  for (int *root : roots)
    if (*root >= 0)
      *root = place[*root];
  return result;
}

} // namespace cinch
