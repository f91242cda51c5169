// DatasetKept.h: values of a data file in a form that examples can be read from at any place, written once to a file under OUT. Its
// first line says what it was made of.
#ifndef CINCH_RUNTIME_DATASETKEPT_H
#define CINCH_RUNTIME_DATASETKEPT_H
#include "runtime/Dataset.h"

namespace cinch::rt {

constexpr int64_t kKeptHead = 192; // bytes of the first line, which ends with time, checksum and size of the file

struct KeptFile {
  bool named = true; // false: there is no folder for results, and it goes away with the process
  Path path;
  char head[kKeptHead + 1]; // of the file that is wanted
  int fd = -1;              // -1: it has to be written
  int64_t size = 0;
};

// Looks for what was made of `source` as `asked` says: OUT/SET.FIELD.`kind`. A file that somebody has changed since is not taken.
void findKept(KeptFile &, const char *out, const char *set, const char *field, const char *kind, uint64_t asked,
              const FieldFile &source);
// Begins to write it, with its first line. False: another process has written it meanwhile, and it is open.
bool beginKept(KeptFile &, AtomicFile &into);
// Opens what was written.
void endKept(KeptFile &, AtomicFile &into);

} // namespace cinch::rt
#endif
