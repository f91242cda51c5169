// JsonFields.h: the fields of a JSON object, each read once: wrong types, missing and unknown ones are errors that name the place.
#ifndef CINCH_COMPILER_SOLVE_STAGES_JSONFIELDS_H
#define CINCH_COMPILER_SOLVE_STAGES_JSONFIELDS_H

#include "llvm/Support/JSON.h"

#include <cmath>
#include <cstdint>
#include <set>
#include <string>

namespace cinch::solve::detail {

class JsonFields {
public:
  // `error` keeps the first message of all objects read.
  JsonFields(const llvm::json::Value *value, std::string place, std::string &error)
      : object(value ? value->getAsObject() : nullptr), place(std::move(place)), error(error) {
    if (!object)
      fail("expected an object");
  }
  void fail(const std::string &message) {
    if (error.empty())
      error = place.empty() ? message : place + ": " + message;
  }
  const llvm::json::Value *any(llvm::StringRef key) {
    known.insert(key.str());
    return object ? object->get(key) : nullptr;
  }
  bool has(llvm::StringRef key) { return any(key) != nullptr; }
  void require(llvm::StringRef key) {
    if (!has(key))
      fail("expected `" + key.str() + "`");
  }
  void number(llvm::StringRef key, double &to) {
    if (const llvm::json::Value *v = any(key)) {
      if (v->getAsNumber())
        to = *v->getAsNumber();
      else
        fail("expected a number for `" + key.str() + "`");
    }
  }
  template <typename T> void integer(llvm::StringRef key, T &to) {
    if (const llvm::json::Value *v = any(key)) {
      // 2e9 is an integer, too.
      std::optional<double> number = v->getAsNumber();
      if (v->getAsInteger() && int64_t(T(*v->getAsInteger())) == *v->getAsInteger())
        to = T(*v->getAsInteger());
      else if (number && std::abs(*number) < 9e15 && std::floor(*number) == *number && double(T(*number)) == *number)
        to = T(*number);
      else
        fail("expected an integer for `" + key.str() + "`");
    }
  }
  void text(llvm::StringRef key, std::string &to) {
    if (const llvm::json::Value *v = any(key)) {
      if (v->getAsString())
        to = v->getAsString()->str();
      else
        fail("expected a string for `" + key.str() + "`");
    }
  }
  void flag(llvm::StringRef key, bool &to) {
    if (const llvm::json::Value *v = any(key)) {
      if (v->getAsBoolean())
        to = *v->getAsBoolean();
      else
        fail("expected true or false for `" + key.str() + "`");
    }
  }
  const llvm::json::Array *array(llvm::StringRef key) {
    const llvm::json::Value *v = any(key);
    if (v && !v->getAsArray())
      fail("expected a list for `" + key.str() + "`");
    return v ? v->getAsArray() : nullptr;
  }
  template <typename T> void integers(llvm::StringRef key, std::vector<T> &to) {
    if (const llvm::json::Array *list = array(key))
      for (const llvm::json::Value &v : *list) {
        if (v.getAsInteger() && int64_t(T(*v.getAsInteger())) == *v.getAsInteger())
          to.push_back(T(*v.getAsInteger()));
        else
          fail("expected integers in `" + key.str() + "`");
      }
  }
  // To be called last: a key that nobody asked for is a mistake.
  void end() {
    if (object)
      for (auto &[key, value] : *object)
        if (!known.count(key.str()))
          fail("unknown key `" + key.str() + "`");
  }

private:
  const llvm::json::Object *object;
  std::string place;
  std::string &error;
  std::set<std::string> known;
};

} // namespace cinch::solve::detail
#endif
