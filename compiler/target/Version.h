// Version.h: which compiler generated an object.
#ifndef CINCH_COMPILER_TARGET_VERSION_H
#define CINCH_COMPILER_TARGET_VERSION_H

namespace cinch::target {

// A hash of the sources of this folder: objects that another version made are not taken over.
const char *targetVersion();

} // namespace cinch::target
#endif
