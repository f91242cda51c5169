// GraphBuilder.cpp: value numbering by a byte string of everything that decides an op's value.
#include "compiler/frontend/GraphBuilder.h"

#include <cstring>

namespace cinch {

template <typename T> static void put(std::string &text, const T &value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  text.append(bytes, sizeof(T));
}

template <typename T> static void putAll(std::string &text, const std::vector<T> &values) {
  put(text, values.size());
  for (const T &value : values)
    put(text, value);
}

static std::string identity(const Op &op) {
  std::string text;
  put(text, op.kind);
  putAll(text, op.operands);
  put(text, op.type.dtype);
  putAll(text, op.type.shape);
  put(text, op.type.batch);
  put(text, op.index);
  putAll(text, op.ints);
  put(text, op.maps.size());
  for (const std::vector<int64_t> &map : op.maps)
    putAll(text, map);
  put(text, op.number);
  putAll(text, op.numbers);
  put(text, op.compare);
  put(text, op.reduce);
  put(text, op.random);
  put(text, op.key);
  put(text, op.hasExcept);
  put(text, op.except);
  put(text, op.attend.causal);
  put(text, op.attend.hasKeys);
  put(text, op.attend.hasBias);
  put(text, op.attend.scale);
  put(text, op.attend.dropout);
  return text;
}

int GraphBuilder::add(Op op) {
  auto [entry, isNew] = seen.try_emplace(identity(op), size());
  if (!isNew)
    return entry->second;
  uint8_t facts = 0;
  for (int operand : op.operands)
    facts |= known[operand];
  if (op.kind == OpKind::Parameter)
    facts |= FromParameter;
  if (op.kind == OpKind::Random || (op.kind == OpKind::Attend && op.attend.dropout > 0))
    facts |= FromRandom;
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
        place[operand] = 0;
  Graph result;
  for (int op = 0; op < size(); ++op) {
    if (place[op] < 0)
      continue;
    place[op] = static_cast<int>(result.ops.size());
    result.ops.push_back(graph.ops[op]);
    for (int &operand : result.ops.back().operands)
      operand = place[operand];
  }
  for (int *root : roots)
    if (*root >= 0)
      *root = place[*root];
  return result;
}

} // namespace cinch
