// NameMap.h: a `names` block of the program: what its parameters are called in a file of another framework.
#ifndef CINCH_RUNTIME_NAMEMAP_H
#define CINCH_RUNTIME_NAMEMAP_H
#include "runtime/Meta.h"

namespace cinch::rt {

// What the map makes of a path, by the first mapping that matches: `*` stands for any text, and the texts that the stars of
// one side stand for are put into the stars of the other, from the left. False: no mapping matches. A name that does not
// fit is cut, and so matches nothing.
bool nameInFile(const NameMap &, const char *path, char (&name)[512], bool &transposed);

// Whether a mapping `"_" = ".."` says that the tensor of this name is not wanted.
bool notWanted(const NameMap &, const char *nameInFile);

} // namespace cinch::rt
#endif
