// MetaLaunch.cpp: the description of one launch, looked up in the replay of a failed step.
#include "runtime/JsonObject.h"
#include <stdio.h>

namespace cinch::rt {

namespace {

// An array of the description, whose items are found in one walk: they are asked for launch by launch.
struct Items {
  const char *text = nullptr;
  int64_t size = 0;
  List<int64_t> places;

  void find(const char *meta, int64_t at) {
    if (text || at < 0)
      return;
    text = meta + at;
    size = int64_t(strlen(text));
    JsonReader json(text, size);
    json.enterArray();
    while (json.nextItem()) {
      json.kind();
      places.add() = json.position();
      json.skipValue();
    }
  }
  bool has(int64_t number) const { return number >= 0 && number < places.size; }
  JsonReader item(int64_t number) const { return JsonReader(text + places[number], size - places[number]); }
};

Items launches, prices, bodies, operations;

void readBuffers(JsonReader &json, LaunchBuffer *buffers, int &count) {
  json.enterArray();
  while (json.nextItem()) {
    LaunchBuffer buffer;
    Object object(json);
    while (object.next()) {
      object.read("offset", buffer.offset);
      object.read("word", buffer.word);
      object.read("dtype", buffer.elem);
      object.read("count", buffer.count);
      object.read("columns", buffer.columns);
      object.read("pitch", buffer.pitch);
    }
    if (count < 64)
      buffers[count++] = buffer;
  }
}

void readNumbers(JsonReader &json, List<int64_t> &list) {
  json.enterArray();
  while (json.nextItem())
    json.readInteger(list.add());
}

void readPrice(JsonReader json, LaunchPrice &price) {
  int64_t *numbers[] = {&price.operations, &price.bytes, &price.operationNanoseconds, &price.byteNanoseconds, &price.nanoseconds};
  json.enterArray();
  for (size_t i = 0; json.nextItem(); ++i)
    json.readInteger(*numbers[i < 5 ? i : 4]);
}

template <size_t N> void readText(Object &object, const char *name, char (&into)[N]) {
  if (object.is(name) && object.json.readString())
    snprintf(into, N, "%s", object.json.text);
}

} // namespace

int64_t launchCount(const Meta &meta, const char *text) {
  launches.find(text, meta.launchesAt);
  return launches.places.size;
}

bool readLaunch(const Meta &meta, const char *text, int32_t number, Launch &launch) {
  launches.find(text, meta.launchesAt);
  if (!launches.has(number))
    return false;
  JsonReader json = launches.item(number);
  launch = Launch();
  int64_t price = -1;
  Object object(json);
  while (object.next()) {
    object.read("line", launch.line);
    object.read("body", launch.body);
    object.read("ops", launch.operations);
    object.read("examples", launch.examples);
    readText(object, "kernel", launch.kernel);
    readText(object, "file", launch.file);
    readText(object, "text", launch.text);
    object.read("price", price);
    if (object.is("outputs"))
      readBuffers(json, launch.outputs, launch.outputCount);
    if (object.is("inputs"))
      readBuffers(json, launch.inputs, launch.inputCount);
  }
  prices.find(text, meta.pricesAt);
  if (prices.has(price))
    readPrice(prices.item(price), launch.price);
  return !json.failed();
}

bool readOperation(const Meta &meta, const char *text, const Launch &launch, int64_t number, LaunchOperation &operation) {
  operations.find(text, meta.operationsAt);
  if (!operations.has(launch.operations) || number < 0)
    return false;
  JsonReader json = operations.item(launch.operations);
  bool found = false;
  Object object(json);
  while (object.next()) {
    if (!object.is("list"))
      continue;
    json.enterArray();
    for (int64_t i = 0; json.nextItem(); ++i) {
      if (i != number) {
        json.skipValue();
        continue;
      }
      operation = LaunchOperation();
      found = true;
      Object entry(json);
      while (entry.next()) {
        readText(entry, "name", operation.name);
        readText(entry, "file", operation.file);
        entry.read("line", operation.line);
        entry.read("batch", operation.ofExamples);
      }
    }
  }
  return found && !json.failed();
}

bool readNodeOperations(const Meta &meta, const char *text, const Launch &launch, List<int64_t> &list) {
  operations.find(text, meta.operationsAt);
  list.size = 0;
  if (!operations.has(launch.operations))
    return false;
  JsonReader json = operations.item(launch.operations);
  Object object(json);
  while (object.next())
    if (object.is("nodes"))
      readNumbers(json, list);
  return !json.failed();
}

bool readBody(const Meta &meta, const char *text, const Launch &launch, List<int64_t> &list) {
  bodies.find(text, meta.bodiesAt);
  list.size = 0;
  if (!bodies.has(launch.body))
    return false;
  JsonReader json = bodies.item(launch.body);
  readNumbers(json, list);
  return !json.failed();
}

} // namespace cinch::rt
