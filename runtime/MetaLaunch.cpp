// MetaLaunch.cpp: the description of one launch, looked up in the replay of a failed step.
#include "runtime/JsonObject.h"
#include <stdio.h>

namespace cinch::rt {

static void readOutput(JsonReader &json, Launch &launch) {
  LaunchOutput output;
  Object object(json);
  while (object.next()) {
    object.read("offset", output.offset);
    object.read("dtype", output.elem);
    object.read("count", output.count);
    object.read("word", output.word);
  }
  if (launch.outputCount < 64)
    launch.outputs[launch.outputCount++] = output;
}

bool readLaunch(const Meta &meta, const char *text, int32_t number, Launch &launch) {
  // Where each launch stands, found in one walk: this runs in the replay of a failed step or after training, for
  // every launch.
  static List<int64_t> places;
  if (meta.launchesAt < 0)
    return false;
  const char *launches = text + meta.launchesAt;
  const int64_t size = int64_t(strlen(launches));
  if (places.size == 0) {
    JsonReader json(launches, size);
    json.enterArray();
    while (json.nextItem()) {
      json.kind();
      places.add() = json.position();
      json.skipValue();
    }
  }
  if (number < 0 || number >= places.size)
    return false;
  JsonReader json(launches + places[number], size - places[number]);
  launch = Launch();
  Object object(json);
  while (object.next()) {
    object.read("line", launch.line);
    if (object.is("kernel") && json.readString())
      snprintf(launch.kernel, sizeof launch.kernel, "%s", json.text);
    if (object.is("file") && json.readString())
      snprintf(launch.file, sizeof launch.file, "%s", json.text);
    if (object.is("text") && json.readString())
      snprintf(launch.text, sizeof launch.text, "%s", json.text);
    if (object.is("outputs")) {
      json.enterArray();
      while (json.nextItem())
        readOutput(json, launch);
    }
  }
  return !json.failed();
}

} // namespace cinch::rt
