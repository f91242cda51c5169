// JsonObject.h: one object of cinch_meta, read key by key into the fields of a struct.
#ifndef CINCH_RUNTIME_JSONOBJECT_H
#define CINCH_RUNTIME_JSONOBJECT_H
#include "runtime/Json.h"
#include "runtime/Meta.h"
#include "runtime/Output.h"
#include <string.h>

namespace cinch::rt {

// The reader of one object: keys are compared in turn, what is not asked for is skipped.
class Object {
public:
  explicit Object(JsonReader &json) : json(json) { json.enterObject(); }
  bool next() {
    if (!used && begun)
      json.skipValue();
    begun = true;
    used = false;
    return json.nextKey();
  }
  bool is(const char *name) {
    if (used || strcmp(json.key, name) != 0)
      return false;
    return used = true;
  }
  void read(const char *name, int64_t &value) {
    if (is(name))
      json.readInteger(value);
  }
  void read(const char *name, int &value) {
    int64_t wide = 0;
    if (is(name) && json.readInteger(wide))
      value = int(wide);
  }
  void read(const char *name, uint64_t &value) {
    if (is(name))
      json.readUnsigned(value);
  }
  void read(const char *name, double &value) {
    if (is(name))
      json.readNumber(value);
  }
  void read(const char *name, bool &value) {
    if (is(name))
      json.readBool(value);
  }
  void read(const char *name, const char *&value) {
    if (is(name) && json.readString())
      value = copyText(json.text, json.textSize);
  }
  void read(const char *name, List<int64_t> &values) {
    if (!is(name))
      return;
    json.enterArray();
    while (json.nextItem())
      json.readInteger(values.add());
  }
  void read(const char *name, Elem &value) {
    if (!is(name) || !json.readString())
      return;
    static const Elem all[] = {Elem::F32, Elem::F64, Elem::I32, Elem::Bool, Elem::BF16};
    for (Elem elem : all)
      if (strcmp(json.text, nameOf(elem)) == 0) {
        value = elem;
        return;
      }
    failInternal("the program's description names a type `%s`", json.text);
  }
  void read(const char *name, Shape &shape) {
    if (!is(name))
      return;
    shape.rank = 0;
    json.enterArray();
    while (json.nextItem()) {
      if (shape.rank == 12)
        failInternal("the program's description has a tensor of more than 12 axes");
      json.readInteger(shape.dims[shape.rank++]);
    }
  }
  void read(const char *name, List<const char *> &list) {
    if (!is(name))
      return;
    json.enterArray();
    while (json.nextItem())
      if (json.readString())
        list.add() = copyText(json.text, json.textSize);
  }
  template <typename T, typename F> void readEach(const char *name, List<T> &list, F readItem) {
    if (!is(name))
      return;
    json.enterArray();
    while (json.nextItem())
      readItem(json, list.add());
  }
  JsonReader &json;

private:
  bool used = false, begun = false;
};

} // namespace cinch::rt
#endif
